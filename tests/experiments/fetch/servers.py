"""A local web server that misbehaves on demand: it breaks off, ignores Range, or fails."""

import http.server
import re
import threading
from contextlib import contextmanager


class Site:
    """Files by path, and how the server treats whoever asks for them."""

    def __init__(self, files):
        self.files = files
        self.ranges = True
        self.break_after = None
        """Bytes after which every answer breaks off."""
        self.status = None
        """An error to answer with."""
        self.requests = []
        """Path and first byte of every request so far."""
        self.url = ""


@contextmanager
def serving(files):
    """A site that answers until the block ends."""
    site = Site(files)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            _answer(self, site)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler, site):
    name = handler.path.lstrip("/")
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    start = int(asked[1]) if asked and site.ranges else 0
    site.requests.append((name, int(asked[1]) if asked else 0))
    body = site.files.get(name)
    if site.status or body is None:
        handler.send_error(site.status or 404)
        return
    if start >= len(body) > 0:
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    handler.send_header("Content-Length", str(len(body) - start))
    handler.end_headers()
    handler.wfile.write(body[start:][: site.break_after])
