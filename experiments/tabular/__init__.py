"""Tables of people as case studies: one row a person, domains that are years, and models of scikit-learn and torch."""
