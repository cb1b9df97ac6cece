"""Images in DomainNet's layout, cached features of a frozen backbone, fine-tuning, and what both case studies share."""
