import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.TrustManagerFactory;

/** HiveMQ's MQTT 5 client over WebSocket and TLS, publishing with QoS 2. */
final class HivemqClient implements Client {
    private final Mqtt5AsyncClient client;

    HivemqClient(String host, int port, TrustManagerFactory trust, Inbox inbox) throws Exception {
        client = Mqtt5Client.builder()
                .serverHost(host).serverPort(port)
                .sslConfig().trustManagerFactory(trust).applySslConfig()
                .webSocketConfig().serverPath("mqtt").applyWebSocketConfig()
                .buildAsync();
        client.publishes(MqttGlobalPublishFilter.ALL, message -> inbox.arrived(
                message.getTopic().toString(), message.getPayloadAsBytes(),
                message.getContentType().map(type -> StandardCharsets.UTF_8.decode(type.toByteBuffer()).toString()).orElse(null),
                message.isRetain(), false));
        client.connect().get(20, TimeUnit.SECONDS);
    }

    @Override
    public void publish(String topic, byte[] data, String contentType, boolean retain) throws Exception {
        Mqtt5Publish message = Mqtt5Publish.builder().topic(topic).payload(data).qos(MqttQos.EXACTLY_ONCE)
                .retain(retain).contentType(contentType).build();
        Mqtt5PublishResult result = client.publish(message).get(40, TimeUnit.SECONDS);
        if (result.getError().isPresent()) {
            throw new Refused(result.getError().get().toString());
        }
    }

    @Override
    public void clear(String topic) throws Exception {
        publish(topic, new byte[0], null, true);
    }

    @Override
    public void follow(String topic) throws Exception {
        client.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send().get(20, TimeUnit.SECONDS);
    }

    @Override
    public void close() throws Exception {
        client.disconnect().get(20, TimeUnit.SECONDS);
    }
}
