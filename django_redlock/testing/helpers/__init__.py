"""For tests of code that locks: what `django_redlock.testing` offers, and the pytest plugin."""
