"""The test project under a theme of the admin, which THEME names."""

import os

from testproject.settings import *  # noqa: F403
from testproject.settings import INSTALLED_APPS

DEBUG = True  # runserver serves the static files
ROOT_URLCONF = "tests.browser.theme_urls"
INSTALLED_APPS = [os.environ["THEME"], *INSTALLED_APPS]
