"""The stores behind ``@idempotent``: in Redis, in memory, or in the database of the view.

As an app in ``INSTALLED_APPS``, this package adds the table of the database store and the command that prunes it.
"""
