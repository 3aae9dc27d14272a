import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubRecException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5SubAckException;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5ConnectBuilder;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** HiveMQ's MQTT 5 client over WebSocket and TLS, publishing with QoS 2. */
final class HivemqClient implements Client {
    private final Mqtt5AsyncClient client;

    HivemqClient(String host, int port, Keys keys, Inbox inbox) throws Exception {
        client = Mqtt5Client.builder()
                .serverHost(host).serverPort(port)
                .sslConfig().trustManagerFactory(keys.trust()).keyManagerFactory(keys.managers()).applySslConfig()
                .webSocketConfig().serverPath("mqtt").applyWebSocketConfig()
                .buildAsync();
        client.publishes(MqttGlobalPublishFilter.ALL, message -> inbox.arrived(
                message.getTopic().toString(), message.getPayloadAsBytes(),
                message.getContentType().map(type -> StandardCharsets.UTF_8.decode(type.toByteBuffer()).toString()).orElse(null),
                message.isRetain(), false));
        try {
            client.connect(hello(keys)).get(60, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof Mqtt5ConnAckException) {
                int code = ((Mqtt5ConnAckException) error.getCause()).getMqttMessage().getReasonCode().getCode();
                throw new Refused(String.format("0x%02x", code));
            }
            throw error;
        }
    }

    /** CONNECT with what there is to show: a password, a token in its place, or SCRAM by AUTH packets. */
    private static Mqtt5Connect hello(Keys keys) {
        Mqtt5ConnectBuilder hello = Mqtt5Connect.builder();
        if (keys.has("mechanism")) {
            hello.enhancedAuth(new ScramAuth(keys.get("mechanism"), keys.get("user"), keys.get("password")));
        } else if (keys.has("token")) {
            hello.simpleAuth().username("token").password(keys.get("token").getBytes(StandardCharsets.UTF_8))
                    .applySimpleAuth();
        } else if (keys.has("password")) {
            hello.simpleAuth().username(keys.get("user"))
                    .password(keys.get("password").getBytes(StandardCharsets.UTF_8)).applySimpleAuth();
        }
        return hello.build();
    }

    @Override
    public void publish(String topic, byte[] data, String contentType, boolean retain) throws Exception {
        Mqtt5Publish message = Mqtt5Publish.builder().topic(topic).payload(data).qos(MqttQos.EXACTLY_ONCE)
                .retain(retain).contentType(contentType).build();
        try {
            Mqtt5PublishResult result = client.publish(message).get(90, TimeUnit.SECONDS);
            if (result.getError().isPresent()) {
                throw new Refused(result.getError().get().toString());
            }
        } catch (ExecutionException error) {
            if (error.getCause() instanceof Mqtt5PubRecException) {
                int code = ((Mqtt5PubRecException) error.getCause()).getMqttMessage().getReasonCode().getCode();
                throw new Refused(String.format("0x%02x", code));
            }
            throw error;
        }
    }

    @Override
    public void clear(String topic) throws Exception {
        publish(topic, new byte[0], null, true);
    }

    @Override
    public void follow(String topic) throws Exception {
        try {
            client.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send().get(60, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof Mqtt5SubAckException) {
                Mqtt5SubAckException refusal = (Mqtt5SubAckException) error.getCause();
                throw new Refused(refusal.getMqttMessage().getReasonCodes().toString());
            }
            throw error;
        }
    }

    @Override
    public void close() throws Exception {
        client.disconnect().get(60, TimeUnit.SECONDS);
    }
}
