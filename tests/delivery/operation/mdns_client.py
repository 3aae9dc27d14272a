"""Finds services by python-zeroconf, or claims a name: a line of JSON for each step, until the input ends.

    mdns_client.py browse 4|6 INTERFACE TYPE...
    mdns_client.py claim INTERFACE TYPE NAME
"""

import json
import signal
import sys

from zeroconf import IPVersion, NonUniqueNameException, ServiceBrowser, ServiceInfo, ServiceListener
from zeroconf import Zeroconf, ZeroconfServiceTypes

# A test that hangs ends.
SECONDS = 90


def say(**step):
    print(json.dumps(step), flush=True)


class Listener(ServiceListener):
    def add_service(self, zc, type_, name):
        info = zc.get_service_info(type_, name, timeout=5000)
        if info is None:
            say(unresolved=name)
            return
        txt = {key.decode(): value and value.decode() for key, value in info.properties.items()}
        addresses = sorted(info.parsed_addresses(IPVersion.All))
        say(added=name, port=info.port, server=info.server, addresses=addresses, txt=txt)

    def update_service(self, zc, type_, name):
        pass

    def remove_service(self, zc, type_, name):
        say(removed=name)


def browse(version, interface, *types):
    versions = {"4": IPVersion.V4Only, "6": IPVersion.V6Only}
    with Zeroconf(interfaces=[interface], ip_version=versions[version]) as zc:
        say(types=sorted(ZeroconfServiceTypes.find(zc=zc, timeout=3)))
        browser = ServiceBrowser(zc, list(types), Listener())
        sys.stdin.read()
        browser.cancel()


def claim(interface, type_, name):
    with Zeroconf(interfaces=[interface], ip_version=IPVersion.V4Only) as zc:
        info = ServiceInfo(type_, f"{name}.{type_}", parsed_addresses=[interface], port=1, server="other.local.")
        try:
            zc.register_service(info)
            say(claimed=True)
        except NonUniqueNameException:
            say(claimed=False)
        sys.stdin.read()


if __name__ == "__main__":
    signal.alarm(SECONDS)
    {"browse": browse, "claim": claim}[sys.argv[1]](*sys.argv[2:])
