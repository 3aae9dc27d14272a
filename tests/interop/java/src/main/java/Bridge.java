import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** Maven clients behind a line protocol, JSON object by line: {@code Bridge mqtt|xmpp|SCHEME HOST PORT CA KEYS}. */
public final class Bridge {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    public static void main(String[] arguments) throws Exception {
        try {
            Keys keys = new Keys(arguments[3], arguments[4]);
            serve(client(arguments[0], arguments[1], Integer.parseInt(arguments[2]), keys));
            System.exit(0);
        } catch (Exception error) {
            JsonObject line = new JsonObject();
            // The exception that a library wraps around the reason says less than the reason.
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            line.addProperty("fatal", error instanceof Client.Refused ? error.getMessage() : cause.toString());
            say(line);
            System.exit(1);
        }
    }

    private static Client client(String kind, String host, int port, Keys keys) throws Exception {
        switch (kind) {
            case "mqtt":
                return new HivemqClient(host, port, keys, Bridge::arrived);
            case "xmpp":
                return new SmackClient(host, port, keys, Bridge::arrived);
            default:
                return new CaliforniumClient(kind, host, port, keys, Bridge::arrived);
        }
    }

    private static void serve(Client client) throws Exception {
        JsonObject ready = new JsonObject();
        ready.addProperty("ready", true);
        say(ready);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            JsonObject answer = new JsonObject();
            answer.add("done", request.get("id"));
            try {
                carryOut(client, request);
            } catch (Exception error) {
                answer.addProperty("error", error instanceof Client.Refused ? error.getMessage() : error.toString());
            }
            say(answer);
        }
    }

    private static void carryOut(Client client, JsonObject request) throws Exception {
        String topic = request.has("topic") ? request.get("topic").getAsString() : null;
        switch (request.get("do").getAsString()) {
            case "publish":
                String type = request.get("content_type").isJsonNull() ? null : request.get("content_type").getAsString();
                byte[] data = Base64.getDecoder().decode(request.get("data").getAsString());
                client.publish(topic, data, type, request.get("retain").getAsBoolean());
                break;
            case "clear":
                client.clear(topic);
                break;
            case "follow":
                client.follow(topic);
                break;
            default:
                client.close();
        }
    }

    private static void arrived(String topic, byte[] data, String contentType, Boolean retain, boolean asXml) {
        JsonObject line = new JsonObject();
        line.addProperty("topic", topic);
        line.addProperty("data", Base64.getEncoder().encodeToString(data));
        line.addProperty("content_type", contentType);
        line.addProperty("retain", retain);
        line.addProperty("as_xml", asXml);
        say(line);
    }

    private static synchronized void say(JsonObject line) {
        System.out.println(GSON.toJson(line));
        System.out.flush();
    }
}
