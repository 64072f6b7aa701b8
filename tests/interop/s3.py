"""An S3 of another make: moto, one request at a time, since its own check of a condition and its write are two
steps: s3.py PORT"""

import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=False, use_reloader=False)
