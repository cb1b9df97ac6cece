"""How runs run; knows no study."""
