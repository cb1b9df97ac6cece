"""One file a data set; its name is the value of `data=`, and the first line of its docstring says what it is.

A file has ``FOLDER``, where the set stands below ``data_home()``; ``FETCH``, what follows `python -m experiments data`
to get it; and ``look(root, domains, *, images, download)``, which gets or checks it and reports on every split.
"""
