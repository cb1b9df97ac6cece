"""The results page: what was made from records, as a folder of HTML that needs no network."""
