import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientConfig;
import com.hivemq.client.mqtt.mqtt5.auth.Mqtt5EnhancedAuthMechanism;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5Auth;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5AuthBuilder;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5EnhancedAuthBuilder;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAck;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5Disconnect;
import com.ongres.scram.client.ScramClient;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** SCRAM in MQTT 5's AUTH packets (§4.12): the messages are OnGres's, the packets HiveMQ's. */
final class ScramAuth implements Mqtt5EnhancedAuthMechanism {
    private final String mechanism;
    private final ScramClient scram;

    ScramAuth(String mechanism, String user, String password) {
        this.mechanism = mechanism;
        scram = ScramClient.builder().advertisedMechanisms(List.of(mechanism))
                .username(user).password(password.toCharArray()).build();
    }

    @Override
    public MqttUtf8String getMethod() {
        return MqttUtf8String.of(mechanism);
    }

    @Override
    public int getTimeout() {
        return 20;
    }

    @Override
    public CompletableFuture<Void> onAuth(Mqtt5ClientConfig client, Mqtt5Connect hello, Mqtt5EnhancedAuthBuilder auth) {
        auth.data(scram.clientFirstMessage().toString().getBytes(StandardCharsets.UTF_8));
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Boolean> onContinue(Mqtt5ClientConfig client, Mqtt5Auth auth, Mqtt5AuthBuilder answer) {
        try {
            scram.serverFirstMessage(text(auth.getData()));
        } catch (Exception error) {
            return CompletableFuture.failedFuture(error);
        }
        answer.data(scram.clientFinalMessage().toString().getBytes(StandardCharsets.UTF_8));
        return CompletableFuture.completedFuture(true);
    }

    /** The server has to know the password too: its signature stands in the CONNACK. */
    @Override
    public CompletableFuture<Boolean> onAuthSuccess(Mqtt5ClientConfig client, Mqtt5ConnAck connAck) {
        try {
            scram.serverFinalMessage(text(connAck.getEnhancedAuth().orElseThrow().getData()));
            return CompletableFuture.completedFuture(true);
        } catch (Exception error) {
            return CompletableFuture.failedFuture(error);
        }
    }

    private static String text(Optional<ByteBuffer> data) {
        return StandardCharsets.UTF_8.decode(data.orElseThrow()).toString();
    }

    @Override
    public CompletableFuture<Void> onReAuth(Mqtt5ClientConfig client, Mqtt5AuthBuilder auth) {
        return CompletableFuture.failedFuture(new UnsupportedOperationException());
    }

    @Override
    public CompletableFuture<Boolean> onReAuthSuccess(Mqtt5ClientConfig client, Mqtt5Auth auth) {
        return CompletableFuture.completedFuture(false);
    }

    @Override
    public void onAuthRejected(Mqtt5ClientConfig client, Mqtt5ConnAck connAck) {
    }

    @Override
    public void onReAuthRejected(Mqtt5ClientConfig client, Mqtt5Disconnect disconnect) {
    }

    @Override
    public void onAuthError(Mqtt5ClientConfig client, Throwable cause) {
    }

    @Override
    public void onReAuthError(Mqtt5ClientConfig client, Throwable cause) {
    }
}
