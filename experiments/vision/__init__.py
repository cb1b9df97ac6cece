"""Images: data sets in DomainNet's layout, cached features of a frozen backbone, fine-tuning, and what both studies share."""
