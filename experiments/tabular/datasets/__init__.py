"""One file a data set; its name is the value of `data=`, and the first line of its docstring says what it is.

A file has ``CLASSES``, names by label; ``DOMAINS``, rows by domain; ``COLUMNS``, names of the inputs; and
``domain(name)``, a `TableDomain`, which fetches what is absent.
"""
