"""Creates a container in a local Azure emulator: `create_container.py PORT NAME`."""

import base64
import hashlib
import hmac
import sys
import urllib.request
from email.utils import formatdate

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

port, name = sys.argv[1:]
date, version = formatdate(usegmt=True), "2021-08-06"
# A request signed with the shared key: verb, eleven empty headers, own headers, resource.
headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
text = "PUT" + "\n" * 12 + headers + resource
signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
request = urllib.request.Request(
    f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container",
    method="PUT",
    headers={"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{signature}"},
)
urllib.request.urlopen(request)
