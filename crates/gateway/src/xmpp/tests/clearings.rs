//! Notifications of subscribers when a topic is cleared.

use super::*;

async fn create(ada: &mut Client, node: &str, fields: &[(&str, &str)]) {
    let config = form("node_config", fields);
    ada.entity("set", &format!("<create node='{node}'/><configure>{config}</configure>")).await;
}

#[tokio::test]
async fn s7_2_2_1_a_retraction_is_announced_if_the_node_or_the_request_says_so() {
    let gateway = gateway();
    let (mut ada, mut bob) = (Client::login(&gateway).await, Client::login(&gateway).await);
    for (node, by_node, by_request) in [("a", false, false), ("b", false, true), ("c", true, false), ("d", true, true)]
    {
        create(&mut ada, node, &[("pubsub#notify_retract", if by_node { "1" } else { "0" })]).await;
        bob.subscribe(node, "").await;
        ada.publish(node, "1").await;
        has(&bob.until("</message>").await, ">1</data>");
        let notify = if by_request { " notify='true'" } else { "" };
        ada.entity("set", &format!("<retract node='{node}'{notify}><item id='current'/></retract>")).await;
        has(&ada.entity("get", &format!("<items node='{node}'/>")).await, &format!("<items node='{node}'/>"));
        ada.publish(node, "2").await;
        if by_node || by_request {
            has(&bob.until("</message>").await, &format!("<items node='{node}'><retract id='current'/></items>"));
        }
        has(&bob.until("</message>").await, ">2</data>");
    }
}

#[tokio::test]
async fn s8_4_and_s8_5_a_node_may_disallow_notifications_of_purges_and_deletions() {
    let gateway = gateway();
    let (mut ada, mut bob) = (Client::login(&gateway).await, Client::login(&gateway).await);
    create(&mut ada, "quiet", &[("pubsub#notify_retract", "0"), ("pubsub#notify_delete", "0")]).await;
    create(&mut ada, "loud", &[]).await;
    for node in ["quiet", "loud"] {
        bob.subscribe(node, "").await;
        ada.publish(node, "1").await;
        has(&bob.until("</message>").await, ">1</data>");
        ada.owner("set", &format!("<purge node='{node}'/>")).await;
        ada.owner("set", &format!("<delete node='{node}'/>")).await;
    }
    has(&bob.until("</message>").await, "<purge node='loud'/>");
    has(&bob.until("</message>").await, "<delete node='loud'/>");
}
