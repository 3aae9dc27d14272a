import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.cose.AlgorithmID;
import org.eclipse.californium.elements.Connector;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.TcpConfig;
import org.eclipse.californium.elements.tcp.netty.TcpClientConnector;
import org.eclipse.californium.elements.tcp.netty.TlsClientConnector;
import org.eclipse.californium.oscore.HashMapCtxDB;
import org.eclipse.californium.oscore.OSCoreCoapStackFactory;
import org.eclipse.californium.oscore.OSCoreCtx;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.CertificateType;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

/** The way to the gateway: a connector for the scheme, and cf-oscore's stack where there is a context. */
final class CaliforniumEndpoint {
    private static final int REPLAY_WINDOW = 32;
    private static final int UNFRAGMENTED_MAX = 4096;

    private CaliforniumEndpoint() {
    }

    static CoapEndpoint of(String scheme, String uri, Keys keys, Configuration configuration) throws Exception {
        CoapEndpoint.Builder builder = CoapEndpoint.builder().setConfiguration(configuration);
        Connector connector = connector(scheme, keys, configuration);
        if (connector != null) {
            builder.setConnector(connector);
        }
        if (keys.has("context")) {
            builder.setCoapStackFactory(new OSCoreCoapStackFactory());
            builder.setCustomCoapStackArgument(contexts(uri, Path.of(keys.get("context"))));
        }
        return builder.build();
    }

    /** Modules whose keys a configuration has to know before it is made. */
    static Configuration configuration() {
        CoapConfig.register();
        DtlsConfig.register();
        TcpConfig.register();
        // A connection without traffic would be closed after ten seconds, and its observations be gone.
        return Configuration.createStandardWithoutFile()
                .set(TcpConfig.TCP_CONNECTION_IDLE_TIMEOUT, 10, TimeUnit.MINUTES);
    }

    private static Connector connector(String scheme, Keys keys, Configuration configuration) throws Exception {
        switch (scheme) {
            case "coap":
                return null;
            case "coap+tcp":
                return new TcpClientConnector(configuration);
            case "coaps+tcp":
                return new TlsClientConnector(keys.context(), configuration);
            case "coaps":
                return datagrams(keys, configuration);
            default:
                throw new IllegalArgumentException(scheme);
        }
    }

    private static Connector datagrams(Keys keys, Configuration configuration) throws Exception {
        // Certificates name the gateway by what people call it, not by the address that the test knows.
        configuration.set(DtlsConfig.DTLS_VERIFY_SERVER_CERTIFICATES_SUBJECT, false);
        configuration.set(DtlsConfig.DTLS_RECOMMENDED_CIPHER_SUITES_ONLY, false);
        configuration.set(DtlsConfig.DTLS_ROLE, DtlsConfig.DtlsRole.CLIENT_ONLY);
        // RFC 9146: both ends get an identifier with certificates, only the gateway with a shared key.
        configuration.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, keys.has("certificate") ? 6 : 0);
        DtlsConnectorConfig.Builder builder = DtlsConnectorConfig.builder(configuration);
        if (keys.has("identity")) {
            builder.setAdvancedPskStore(new AdvancedSinglePskStore(keys.get("identity"), keys.secret()));
        } else {
            builder.setAdvancedCertificateVerifier(StaticNewAdvancedCertificateVerifier.builder()
                    .setTrustedCertificates(keys.authority()).build());
        }
        if (keys.has("certificate")) {
            builder.setCertificateIdentityProvider(
                    new SingleCertificateProvider(keys.key(), keys.chain(), CertificateType.X_509));
        }
        return new DTLSConnector(builder.build());
    }

    /** The context from the directory in which aiocoap keeps it. */
    private static HashMapCtxDB contexts(String uri, Path directory) throws Exception {
        JsonObject settings = JsonParser.parseString(Files.readString(directory.resolve("settings.json")))
                .getAsJsonObject();
        AlgorithmID algorithm = algorithm(settings);
        OSCoreCtx context = new OSCoreCtx(
                field(settings, "secret_hex"), true, algorithm, field(settings, "sender-id_hex"),
                field(settings, "recipient-id_hex"), AlgorithmID.HKDF_HMAC_SHA_256, REPLAY_WINDOW,
                field(settings, "salt_hex"), field(settings, "id-context_hex"), UNFRAGMENTED_MAX);
        // A context that both sides have used before must not begin at the same number again.
        context.setSenderSeq((int) (System.currentTimeMillis() / 1000 % 1_000_000_000));
        HashMapCtxDB contexts = new HashMapCtxDB();
        contexts.addContext(uri, context);
        return contexts;
    }

    private static AlgorithmID algorithm(JsonObject settings) {
        String name = settings.has("algorithm") ? settings.get("algorithm").getAsString() : "AES-CCM-16-64-128";
        return Arrays.stream(AlgorithmID.values())
                .filter(one -> one.name().equals(name.replace('-', '_').replace("A128GCM", "AES_GCM_128")))
                .findFirst().orElseThrow(() -> new IllegalArgumentException(name));
    }

    private static byte[] field(JsonObject settings, String name) {
        return settings.has(name) ? Keys.unhex(settings.get(name).getAsString()) : null;
    }
}
