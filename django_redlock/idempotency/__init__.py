"""The stores behind ``@idempotent``: in Redis, in memory, or in the database of the view.

In ``INSTALLED_APPS``, this package adds the table of the database store, and a command that removes expired rows.
"""
