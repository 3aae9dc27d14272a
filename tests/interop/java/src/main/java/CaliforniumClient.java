import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapObserveRelation;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.elements.DtlsEndpointContext;
import org.eclipse.californium.elements.EndpointContext;
import org.eclipse.californium.elements.config.Configuration;

/** Californium: block-wise PUT and Observe with its own ideas of both, in the clear, by Scandium, TLS or OSCORE. */
final class CaliforniumClient implements Client {
    private static final Map<String, Integer> FORMATS = Map.of(
            "text/plain;charset=utf-8", 0, "application/xml", 41, "application/octet-stream", 42, "application/json", 50);

    private final CoapClient client;
    private final String base;
    private final boolean oscore;
    private final Inbox inbox;
    private final List<CoapObserveRelation> relations = new CopyOnWriteArrayList<>();

    CaliforniumClient(String scheme, String host, int port, Keys keys, Inbox inbox) throws Exception {
        Configuration configuration = CaliforniumEndpoint.configuration();
        configuration.set(CoapConfig.MAX_RESOURCE_BODY_SIZE, 4 << 20);
        configuration.set(CoapConfig.RESPONSE_MATCHING, CoapConfig.MatcherMode.STRICT);
        // It keeps each message id from use for 247 s, and a mebibyte in blocks takes a thousand of them.
        configuration.set(CoapConfig.MID_TRACKER, CoapConfig.TrackerMode.NULL);
        client = new CoapClient();
        oscore = keys.has("context");
        client.setEndpoint(CaliforniumEndpoint.of(scheme, scheme + "://" + host + ":" + port, keys, configuration));
        client.setTimeout(TimeUnit.SECONDS.toMillis(60));
        base = scheme + "://" + host + ":" + port + "/ps/";
        this.inbox = inbox;
    }

    @Override
    public void publish(String topic, byte[] data, String contentType, boolean retain) throws Exception {
        Request request = new Request(retain ? CoAP.Code.PUT : CoAP.Code.POST);
        request.setURI(base + topic);
        request.setPayload(data);
        if (contentType != null && FORMATS.containsKey(contentType)) {
            request.getOptions().setContentFormat(FORMATS.get(contentType));
        }
        ask(request);
    }

    @Override
    public void clear(String topic) throws Exception {
        Request request = new Request(CoAP.Code.DELETE);
        request.setURI(base + topic);
        ask(request);
    }

    private void ask(Request request) throws Exception {
        protect(request);
        CoapResponse answer = client.advanced(request);
        if (answer == null) {
            throw new IllegalStateException("no response");
        }
        if (!answer.isSuccess()) {
            throw new Refused(answer.getCode().toString());
        }
        EndpointContext session = answer.advanced().getSourceContext();
        if (base.startsWith("coaps:") && session.get(DtlsEndpointContext.KEY_WRITE_CONNECTION_ID) == null) {
            throw new IllegalStateException("the gateway gave no connection identifier");
        }
    }

    /** An empty option asks cf-oscore's layer to fill it in. */
    private void protect(Request request) {
        if (oscore) {
            request.getOptions().setOscore(new byte[0]);
        }
    }

    @Override
    public void follow(String topic) throws Exception {
        Request request = new Request(CoAP.Code.GET);
        request.setURI(base + topic);
        request.setObserve();
        protect(request);
        CoapObserveRelation relation = client.observeAndWait(request, new CoapHandler() {
            @Override
            public void onLoad(CoapResponse answer) {
                if (answer.getCode() == CoAP.ResponseCode.NOT_ACCEPTABLE) {
                    // A change of Content-Format ends an observation (RFC 7641 §4.2): a new one shows the value.
                    new Thread(() -> followAgain(topic)).start();
                    return;
                }
                int format = answer.getOptions().getContentFormat();
                String type = FORMATS.entrySet().stream().filter(entry -> entry.getValue() == format)
                        .map(Map.Entry::getKey).findFirst().orElse(null);
                inbox.arrived(topic, answer.getPayload(), type, null, false);
            }

            @Override
            public void onError() {
                System.err.println("the observation of " + topic + " failed");
            }
        });
        if (relation.isCanceled()) {
            // The relation keeps no answer that is an error; whoever asks without observing is told the same.
            Request plain = new Request(CoAP.Code.GET);
            plain.setURI(base + topic);
            ask(plain);
            throw new Refused("the observation was not accepted");
        }
        relations.add(relation);
    }

    private void followAgain(String topic) {
        try {
            follow(topic);
        } catch (Exception refused) {
            System.err.println("observing " + topic + " again: " + refused);
        }
    }

    @Override
    public void close() {
        relations.forEach(CoapObserveRelation::proactiveCancel);
        client.shutdown();
    }
}
