"""XMPP as XMPP: discovery, nodes and their life, errors with the standard's conditions."""

from client import PATIENCE, Refused
from clients_xmpp import to_element
from scenarios import expect, fresh, require, scenario

TEXT = "text/plain;charset=utf-8"


async def refusal(request) -> str:
    try:
        await request
    except Refused as refused:
        return refused.code
    return "nothing"


@scenario
async def the_service_is_discovered_as_pubsub(doors):
    disco = doors.xmpp.client.plugin["xep_0030"]
    items = await disco.get_items("localhost", timeout=PATIENCE)
    jids = {jid for jid, _, _ in items["disco_items"]["items"]}
    require("among the items of the domain:", doors.xmpp.service in jids, jids)
    info = await disco.get_info(doors.xmpp.service, timeout=PATIENCE)
    identities = {(category, kind) for category, kind, _, _ in info["disco_info"]["identities"]}
    require("identity", ("pubsub", "service") in identities, identities)
    features = info["disco_info"]["features"]
    for feature in ("publish", "subscribe", "retrieve-items", "create-nodes", "purge-nodes", "publish-options"):
        require(feature, f"http://jabber.org/protocol/pubsub#{feature}" in features, features)


@scenario
async def a_node_is_created_purged_and_deleted(doors):
    xmpp, node = doors.xmpp, fresh("node")
    await xmpp.ask(xmpp.pubsub.create_node(xmpp.service, node, timeout=PATIENCE))
    expect("again", await refusal(xmpp.ask(xmpp.pubsub.create_node(xmpp.service, node, timeout=PATIENCE))), "conflict")
    await xmpp.publish(node, b"x", TEXT)
    expect("at the other doors", (await doors.coap.get(node)).payload, b"x")
    await xmpp.clear(node)
    expect("purged", await doors.http.get(node), None)
    await xmpp.ask(xmpp.pubsub.delete_node(xmpp.service, node, timeout=PATIENCE))


@scenario
async def errors_carry_the_conditions_of_the_standard(doors):
    xmpp = doors.xmpp
    expect("items of no node", await refusal(
        xmpp.ask(xmpp.pubsub.get_items(xmpp.service, fresh("nothing"), timeout=PATIENCE))), "item-not-found")
    expect("delete no node", await refusal(
        xmpp.ask(xmpp.pubsub.delete_node(xmpp.service, fresh("nothing"), timeout=PATIENCE))), "item-not-found")
    topic = fresh("other")
    await doors.http.publish(topic, b"x", TEXT)
    expect("for somebody else", await refusal(xmpp.ask(
        xmpp.pubsub.subscribe(xmpp.service, topic, subscribee="somebody@localhost", timeout=PATIENCE))), "bad-request")
    expect("a wildcard node", await refusal(xmpp.publish("a/+/b", b"x", TEXT)) in (
        "bad-request", "not-acceptable", "item-not-found", "jid-malformed"), True)


@scenario
async def retracting_the_current_item_clears_the_topic(doors):
    xmpp, node = doors.xmpp, fresh("retract")
    await doors.mqtt.publish(node, b"x", TEXT)
    await xmpp.ask(xmpp.pubsub.retract(xmpp.service, node, "current", notify=True, timeout=PATIENCE))
    expect("cleared", await doors.http.get(node), None)


@scenario
async def the_kept_item_is_called_current(doors):
    xmpp, node = doors.xmpp, fresh("current")
    await doors.coap.publish(node, b"x", TEXT)
    answer = await xmpp.ask(xmpp.pubsub.get_item(xmpp.service, node, "current", timeout=PATIENCE))
    ids = [item.get("id") for item in answer["pubsub"]["items"].xml]
    expect("ids", ids, ["current"])
    await xmpp.follow(node)
    expect("id in the event", (await xmpp.next(node)).extra["id"], "current")


@scenario
async def an_empty_value_is_an_item_without_content(doors):
    for door in (doors.coap, doors.http):
        node = fresh("empty")
        await doors.xmpp.follow(node)
        await door.publish(node, b"", None)
        arrived = await doors.xmpp.next(node)
        expect(f"by {door.door}", (arrived.payload, arrived.extra.get("id")), (b"", "current"))
        await doors.mqtt.clear(node)
        expect("cleared", (await doors.xmpp.next(node)).extra.get("gone"), "retract")


@scenario
async def an_item_keeps_the_id_of_its_publisher(doors):
    xmpp, node = doors.xmpp, fresh("id")
    await xmpp.follow(node)
    await xmpp.ask(xmpp.pubsub.publish(
        xmpp.service, node, id="princely", payload=to_element(b"x", TEXT), timeout=PATIENCE))
    expect("in the event", (await xmpp.next(node)).extra["id"], "princely")
    answer = await xmpp.ask(xmpp.pubsub.get_item(xmpp.service, node, "princely", timeout=PATIENCE))
    expect("in the answer", [item.get("id") for item in answer["pubsub"]["items"].xml], ["princely"])
    expect("at the other doors", (await doors.http.get(node)).payload, b"x")
    await xmpp.ask(xmpp.pubsub.retract(xmpp.service, node, "princely", notify=True, timeout=PATIENCE))
    expect("cleared", await doors.coap.get(node), None)


@scenario
async def unsubscribing_ends_notifications(doors):
    xmpp, node, other = doors.xmpp, fresh("leave"), fresh("leave")
    for one in (node, other):
        await doors.http.publish(one, b"first", TEXT)
        await xmpp.follow(one)
        await xmpp.next(one)
    subscriptions = await xmpp.ask(xmpp.pubsub.get_subscriptions(xmpp.service, timeout=PATIENCE))
    require("listed", node in str(subscriptions), subscriptions)
    await xmpp.ask(xmpp.pubsub.unsubscribe(xmpp.service, node, timeout=PATIENCE))
    for one in (node, other):
        await doors.mqtt.publish(one, b"second", TEXT)
    expect("the other", (await xmpp.next(other)).payload, b"second")
    require("nothing came", xmpp._inbox[node].empty())


@scenario
async def ping_version_and_stream_management_answer(doors):
    client = doors.xmpp.client
    require("ping", await client.plugin["xep_0199"].send_ping("localhost", timeout=PATIENCE) is not None)
    version = await client.plugin["xep_0092"].get_version("localhost", timeout=PATIENCE)
    require("version", "fogmux" in str(version["software_version"]["name"]).lower(), version)
    require("XEP-0198 is on", client.plugin["xep_0198"].enabled_in and client.plugin["xep_0198"].enabled_out)


@scenario
async def one_subscription_follows_a_filter(doors):
    xmpp, place = doors.xmpp, fresh("filter")
    form = xmpp.client.plugin["xep_0004"].make_form(ftype="submit")
    form.add_field(var="FORM_TYPE", ftype="hidden", value="http://jabber.org/protocol/pubsub#subscribe_options")
    form.add_field(var="{urn:fogmux:0}filter", value="true")
    await xmpp.ask(xmpp.pubsub.subscribe(xmpp.service, f"{place}/+/t", options=form, timeout=PATIENCE))
    for door, level in ((doors.mqtt, "one"), (doors.http, "two"), (doors.coap, "three")):
        await door.publish(f"{place}/{level}/other", b"not this", TEXT)
        await door.publish(f"{place}/{level}/t", level.encode(), TEXT)
        # The node of the notification is the topic, not the filter.
        expect(f"by {door.door}", (await xmpp.next(f"{place}/{level}/t")).payload, level.encode())
    others = [xmpp._inbox[f"{place}/{level}/other"] for level in ("one", "two", "three")]
    require("nothing else came", all(other.empty() for other in others))
    await xmpp.ask(xmpp.pubsub.unsubscribe(xmpp.service, f"{place}/+/t", timeout=PATIENCE))
    end = fresh("filter")
    await xmpp.ask(xmpp.pubsub.subscribe(xmpp.service, end, timeout=PATIENCE))
    await doors.http.publish(f"{place}/one/t", b"after the end", TEXT)
    await doors.http.publish(end, b"the end", TEXT)
    expect("after it", (await xmpp.next(end)).payload, b"the end")
    require("the filter is silent", xmpp._inbox[f"{place}/one/t"].empty())
