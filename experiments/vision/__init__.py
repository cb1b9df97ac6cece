"""Images: data sets in DomainNet's layout, where they come from, and whether they are whole."""
