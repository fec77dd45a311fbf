"""gunicorn's configuration for gevent with `--preload`: threads are replaced before the program is loaded."""

import gevent.monkey

gevent.monkey.patch_all()
