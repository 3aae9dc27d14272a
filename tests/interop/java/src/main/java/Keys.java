import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** What the client has to show: a credential as the tests wrote it, and the authority that it trusts. */
final class Keys {
    private final JsonObject fields;
    private final Path ca;

    Keys(String ca, String credential) {
        this.ca = Path.of(ca);
        fields = JsonParser.parseString(credential).getAsJsonObject();
    }

    /** A field, or null. */
    String get(String name) {
        JsonElement field = fields.get(name);
        return field == null || field.isJsonNull() ? null : field.getAsString();
    }

    boolean has(String name) {
        return get(name) != null;
    }

    /** The pre-shared key. */
    byte[] secret() {
        return unhex(get("secret"));
    }

    static byte[] unhex(String text) {
        byte[] bytes = new byte[text.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(text.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }

    X509Certificate authority() throws GeneralSecurityException, IOException {
        return certificates(ca)[0];
    }

    X509Certificate[] chain() throws GeneralSecurityException, IOException {
        return certificates(Path.of(get("certificate")));
    }

    private static X509Certificate[] certificates(Path file) throws GeneralSecurityException, IOException {
        try (InputStream in = Files.newInputStream(file)) {
            return CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(new X509Certificate[0]);
        }
    }

    /** The private key, PKCS#8 in PEM. */
    PrivateKey key() throws GeneralSecurityException, IOException {
        String pem = Files.readString(Path.of(get("key")));
        String body = pem.replaceAll("-----[^-]+-----", "").replaceAll("\\s", "");
        PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(body));
        return KeyFactory.getInstance(chain()[0].getPublicKey().getAlgorithm()).generatePrivate(encoded);
    }

    TrustManagerFactory trust() throws GeneralSecurityException, IOException {
        KeyStore store = empty();
        store.setCertificateEntry("ca", authority());
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory;
    }

    /** The certificate as Java's TLS wants it, or null where there is none. */
    KeyManagerFactory managers() throws GeneralSecurityException, IOException {
        if (!has("certificate")) {
            return null;
        }
        KeyStore store = empty();
        store.setKeyEntry("client", key(), new char[0], (Certificate[]) chain());
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, new char[0]);
        return factory;
    }

    SSLContext context() throws GeneralSecurityException, IOException {
        SSLContext context = SSLContext.getInstance("TLS");
        KeyManagerFactory managers = managers();
        context.init(managers == null ? null : managers.getKeyManagers(), trust().getTrustManagers(), null);
        return context;
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }
}
