import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientBuilder;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** HiveMQ's MQTT client behind the line protocol of {@code mqtt_programs.py}. */
public final class HivemqPeer {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final Map<String, Mqtt5AsyncClient> CONNECTIONS = new ConcurrentHashMap<>();

    private HivemqPeer() {
    }

    public static void main(String[] arguments) throws Exception {
        JsonObject ready = new JsonObject();
        ready.addProperty("ready", true);
        ready.addProperty("version", version());
        say(ready);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            CompletableFuture<Boolean> result;
            try {
                result = carryOut(request);
            } catch (Exception error) {
                result = CompletableFuture.failedFuture(error);
            }
            result.whenComplete((session, error) -> {
                JsonObject answer = new JsonObject();
                answer.add("done", request.get("id"));
                answer.addProperty("session", session);
                answer.addProperty("error", error == null ? null : root(error).toString());
                say(answer);
            });
        }
        System.exit(0);
    }

    /** The release of the library: it is in the name of its file only. */
    private static String version() {
        String file = Mqtt5Client.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return file.replaceAll(".*hivemq-mqtt-client-|\\.jar", "");
    }

    private static Throwable root(Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }

    private static CompletableFuture<Boolean> carryOut(JsonObject request) throws Exception {
        String name = request.get("name").getAsString();
        if (request.get("do").getAsString().equals("open")) {
            return open(name, request);
        }
        Mqtt5AsyncClient client = CONNECTIONS.get(name);
        switch (request.get("do").getAsString()) {
            case "subscribe":
                return client.subscribeWith().topicFilter(request.get("filter").getAsString()).qos(qos(request)).send()
                        .thenApply(granted -> null);
            case "publish":
                List<CompletableFuture<Mqtt5PublishResult>> sent = new ArrayList<>();
                request.get("data").getAsJsonArray().forEach(data -> sent.add(
                        client.publishWith().topic(request.get("topic").getAsString()).qos(qos(request))
                                .payload(bytes(data.getAsString())).send()));
                return CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).thenApply(all -> null);
            default:
                return client.disconnect().thenApply(nothing -> null);
        }
    }

    private static CompletableFuture<Boolean> open(String name, JsonObject request) throws Exception {
        Mqtt5ClientBuilder builder = Mqtt5Client.builder().identifier(request.get("client").getAsString())
                .serverHost(request.get("host").getAsString()).serverPort(request.get("port").getAsInt());
        switch (request.get("transport").getAsString()) {
            case "ws":
                builder = builder.webSocketConfig().serverPath("mqtt").applyWebSocketConfig();
                break;
            case "tls":
                Keys keys = new Keys(request.get("ca").getAsString(), "{}");
                builder = builder.sslConfig().trustManagerFactory(keys.trust()).applySslConfig();
                break;
            default:
        }
        if (request.get("will").isJsonObject()) {
            JsonObject will = request.get("will").getAsJsonObject();
            builder = builder.willPublish().topic(will.get("topic").getAsString())
                    .qos(MqttQos.AT_LEAST_ONCE).retain(true)
                    .payload(bytes(will.get("data").getAsString())).applyWillPublish();
        }
        if (request.get("returns").getAsBoolean()) {
            builder = builder.automaticReconnect().initialDelay(200, TimeUnit.MILLISECONDS)
                    .maxDelay(200, TimeUnit.MILLISECONDS).applyAutomaticReconnect();
        }
        Mqtt5AsyncClient client = builder.buildAsync();
        // Before CONNACK: the messages of a session follow it at once.
        client.publishes(MqttGlobalPublishFilter.ALL, message -> {
            JsonObject line = new JsonObject();
            line.addProperty("name", name);
            line.addProperty("data", new String(message.getPayloadAsBytes(), StandardCharsets.UTF_8));
            line.addProperty("qos", message.getQos().getCode());
            say(line);
        });
        CONNECTIONS.put(name, client);
        long expiry = request.get("expiry").getAsLong();
        return client.connectWith().cleanStart(expiry == 0).sessionExpiryInterval(expiry).send()
                .thenApply(connack -> connack.isSessionPresent());
    }

    private static MqttQos qos(JsonObject request) {
        return MqttQos.fromCode(request.get("qos").getAsInt());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static synchronized void say(JsonObject line) {
        System.out.println(GSON.toJson(line));
        System.out.flush();
    }
}
