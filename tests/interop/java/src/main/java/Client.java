/** What a bridge asks of a client. Every call returns when the gateway has acknowledged, or throws what it said. */
interface Client {
    void publish(String topic, byte[] data, String contentType, boolean retain) throws Exception;

    void clear(String topic) throws Exception;

    void follow(String topic) throws Exception;

    void close() throws Exception;

    /** Where messages go that arrive. */
    interface Inbox {
        void arrived(String topic, byte[] data, String contentType, Boolean retain, boolean asXml);
    }

    /** The gateway said no, in the words of its standard. */
    final class Refused extends Exception {
        Refused(String code) {
            super(code);
        }
    }
}
