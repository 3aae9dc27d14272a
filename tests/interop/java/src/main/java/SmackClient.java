import java.io.StringReader;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.net.ssl.X509TrustManager;
import javax.xml.parsers.DocumentBuilderFactory;
import org.jivesoftware.smack.ConnectionConfiguration.SecurityMode;
import org.jivesoftware.smack.SASLAuthentication;
import org.jivesoftware.smack.XMPPException.XMPPErrorException;
import org.jivesoftware.smack.sasl.SASLErrorException;
import org.jivesoftware.smack.tcp.XMPPTCPConnection;
import org.jivesoftware.smack.tcp.XMPPTCPConnectionConfiguration;
import org.jivesoftware.smack.util.StringUtils;
import org.jivesoftware.smackx.pubsub.Item;
import org.jivesoftware.smackx.pubsub.LeafNode;
import org.jivesoftware.smackx.pubsub.PayloadItem;
import org.jivesoftware.smackx.pubsub.PubSubManager;
import org.jivesoftware.smackx.pubsub.SimplePayload;
import org.jxmpp.jid.impl.JidCreate;
import org.w3c.dom.Element;
import org.xml.sax.InputSource;

/** Smack: STARTTLS, SASL ANONYMOUS, SCRAM or EXTERNAL, and XEP-0060 as its parsers want it. */
final class SmackClient implements Client {
    private static final String DATA = "urn:fogmux:0";
    private static final String JSON = "urn:xmpp:json:0";

    private final XMPPTCPConnection connection;
    private final PubSubManager pubsub;
    private final Inbox inbox;

    SmackClient(String host, int port, Keys keys, Inbox inbox) throws Exception {
        XMPPTCPConnectionConfiguration.Builder builder = XMPPTCPConnectionConfiguration.builder()
                .setXmppDomain("localhost").setHost(host).setPort(port).setSecurityMode(SecurityMode.required);
        if (keys.has("certificate")) {
            builder.performSaslExternalAuthentication(keys.context())
                    .setKeyManagers(keys.managers().getKeyManagers());
        }
        builder.setCustomX509TrustManager((X509TrustManager) keys.trust().getTrustManagers()[0]);
        if (keys.has("password")) {
            // Smack does not trust every Java to know its own channel bindings.
            SASLAuthentication.unBlacklistSASLMechanism(keys.get("mechanism"));
            builder.setUsernameAndPassword(keys.get("user"), keys.get("password"))
                    .addEnabledSaslMechanism(keys.get("mechanism"));
        } else if (!keys.has("certificate")) {
            builder.performSaslAnonymousAuthentication();
        }
        connection = new XMPPTCPConnection(builder.build());
        connection.setReplyTimeout(20_000);
        try {
            connection.connect().login();
        } catch (SASLErrorException error) {
            throw new Refused(error.getSASLFailure().getSASLErrorString());
        }
        pubsub = PubSubManager.getInstanceFor(connection, JidCreate.domainBareFrom("pubsub.localhost"));
        this.inbox = inbox;
    }

    @Override
    public void publish(String topic, byte[] data, String contentType, boolean retain) throws Exception {
        try {
            pubsub.tryToPublishAndPossibleAutoCreate(topic, new PayloadItem<>(new SimplePayload(wrap(data, contentType))));
        } catch (XMPPErrorException error) {
            throw new Refused(error.getStanzaError().getCondition().toString());
        }
    }

    private static String wrap(byte[] data, String contentType) {
        String text = clean(data);
        if (text != null && "application/json".equals(contentType)) {
            return "<json xmlns='" + JSON + "'>" + StringUtils.escapeForXml(text) + "</json>";
        }
        if (text != null && "application/xml".equals(contentType) && !text.startsWith("<?")) {
            return text;
        }
        String type = contentType == null ? "" : " content-type='" + StringUtils.escapeForXml(contentType) + "'";
        String start = "<data xmlns='" + DATA + "'" + type + " encoding='" + (text == null ? "base64" : "utf8") + "'>";
        return start + (text == null ? Base64.getEncoder().encodeToString(data) : StringUtils.escapeForXml(text)) + "</data>";
    }

    /** The text, when XML can carry it unchanged. */
    private static String clean(byte[] data) {
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(data)).toString();
            return text.chars().anyMatch(c -> c < 32 && c != '\t' && c != '\n') ? null : text;
        } catch (CharacterCodingException error) {
            return null;
        }
    }

    @Override
    public void clear(String topic) throws Exception {
        leaf(topic).deleteAllItems();
    }

    @Override
    public void follow(String topic) throws Exception {
        LeafNode node = leaf(topic);
        node.addItemEventListener(event -> event.getItems().forEach(item -> arrived(topic, (Item) item)));
        node.subscribe(connection.getUser());
    }

    private LeafNode leaf(String topic) throws Exception {
        try {
            return pubsub.getLeafNode(topic);
        } catch (XMPPErrorException error) {
            throw new Refused(error.getStanzaError().getCondition().toString());
        }
    }

    private void arrived(String topic, Item item) {
        if (!(item instanceof PayloadItem)) {
            return;
        }
        String xml = ((PayloadItem<?>) item).getPayload().toXML().toString();
        try {
            DocumentBuilderFactory factory = DocumentBuilderFactory.newInstance();
            factory.setNamespaceAware(true);
            Element root = factory.newDocumentBuilder().parse(new InputSource(new StringReader(xml))).getDocumentElement();
            String text = root.getTextContent();
            if (JSON.equals(root.getNamespaceURI())) {
                inbox.arrived(topic, text.getBytes(StandardCharsets.UTF_8), "application/json", null, false);
            } else if (DATA.equals(root.getNamespaceURI())) {
                boolean base64 = "base64".equals(root.getAttribute("encoding"));
                byte[] data = base64 ? Base64.getMimeDecoder().decode(text) : text.getBytes(StandardCharsets.UTF_8);
                String type = root.hasAttribute("content-type") ? root.getAttribute("content-type") : null;
                inbox.arrived(topic, data, type, null, false);
            } else {
                inbox.arrived(topic, xml.getBytes(StandardCharsets.UTF_8), "application/xml", null, true);
            }
        } catch (Exception error) {
            inbox.arrived(topic, error.toString().getBytes(StandardCharsets.UTF_8), "error", null, false);
        }
    }

    @Override
    public void close() {
        connection.disconnect();
    }
}
