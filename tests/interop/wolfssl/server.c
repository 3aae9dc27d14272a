/* A DTLS server that the interop tests start for our client: wolfSSL makes one session, and every CoAP request in it is
 * answered by 2.05 with what was agreed on. It ends with its session.
 *
 *   server 1.2|1.3|both [--psk IDENTITY KEY] [--cert CHAIN KEY] [--ca FILE (asks for a certificate)] [--suite NAME]
 *          [--group NAME] [--cid HEX] [--update (new keys before the first answer)]
 *
 * Lines out: port PORT, established VERSION SUITE, closed, failed WHY
 */
#include "user_settings.h"
#include <wolfssl/ssl.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *identity, *key, *suite;
} psk;
static struct sockaddr_in client;
static int fd = -1;

static void fail(const char *why)
{
    printf("failed %s\n", why);
    fflush(stdout);
    exit(1);
}

static void fail_by(WOLFSSL *ssl, int code)
{
    char text[WOLFSSL_MAX_ERROR_SZ];
    WOLFSSL_ALERT_HISTORY alerts;
    printf("failed %s", wolfSSL_ERR_error_string((unsigned long)code, text));
    if (wolfSSL_get_alert_history(ssl, &alerts) == WOLFSSL_SUCCESS && alerts.last_rx.code >= 0)
        printf("; alert %d", alerts.last_rx.code);
    printf("\n");
    fflush(stdout);
    exit(1);
}

static unsigned int on_psk(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max)
{
    size_t len = strlen(psk.key);
    (void)ssl;
    if (len > key_max || strcmp(identity, psk.identity) != 0)
        return 0;
    memcpy(key, psk.key, len);
    return (unsigned int)len;
}

static unsigned int on_psk_13(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max,
                              const char **suite)
{
    *suite = psk.suite;
    return on_psk(ssl, identity, key, key_max);
}

/* The first client there is; it may send from another port later, where it is answered. */
static int on_read(WOLFSSL *ssl, char *buffer, int size, void *context)
{
    socklen_t len = sizeof client;
    ssize_t got = recvfrom(fd, buffer, (size_t)size, MSG_DONTWAIT, (struct sockaddr *)&client, &len);
    (void)ssl;
    (void)context;
    return got < 0 ? WOLFSSL_CBIO_ERR_WANT_READ : (int)got;
}

static int on_write(WOLFSSL *ssl, char *buffer, int size, void *context)
{
    (void)ssl;
    (void)context;
    sendto(fd, buffer, (size_t)size, 0, (struct sockaddr *)&client, sizeof client);
    return size;
}

static int wait_for_input(int milliseconds)
{
    struct pollfd on = { fd, POLLIN, 0 };
    return poll(&on, 1, milliseconds);
}

static void handshake(WOLFSSL *ssl)
{
    time_t end = time(NULL) + 60;
    while (time(NULL) < end) {
        int result = wolfSSL_accept(ssl), code;
        if (result == WOLFSSL_SUCCESS)
            return;
        code = wolfSSL_get_error(ssl, result);
        if (code != WOLFSSL_ERROR_WANT_READ && code != WOLFSSL_ERROR_WANT_WRITE)
            fail_by(ssl, code);
        if (wait_for_input(wolfSSL_dtls_get_current_timeout(ssl) * 1000) == 0 && client.sin_port != 0)
            if (wolfSSL_dtls_got_timeout(ssl) != WOLFSSL_SUCCESS)
                fail("timeout");
    }
    fail("timeout");
}

/* RFC 7252 §3: an acknowledgement with 2.05 and the request's token. */
static int answer(WOLFSSL *ssl, const unsigned char *request, int len, unsigned char *out, size_t max)
{
    int token = len >= 4 ? request[0] & 15 : 0;
    const char *group = wolfSSL_get_curve_name(ssl);
    if (len < 4 + token || (request[0] >> 4 & 3) != 0)
        return 0;
    memcpy(out, request, (size_t)(4 + token));
    out[0] = (unsigned char)(0x60 | token);
    out[1] = 69;
    out[4 + token] = 0xff;
    return 5 + token
           + snprintf((char *)out + 5 + token, max - 5 - (size_t)token, "%s %s %s", wolfSSL_get_version(ssl),
                      wolfSSL_get_cipher_name(ssl), group ? group : "-");
}

static void serve(WOLFSSL *ssl, int update)
{
    static unsigned char data[16384], out[512];
    time_t end = time(NULL) + 60;
    while (time(NULL) < end) {
        int code, len = wolfSSL_read(ssl, data, sizeof data);
        if (len > 0) {
            if (update && wolfSSL_update_keys(ssl) != WOLFSSL_SUCCESS)
                fail("update");
            update = 0;
            len = answer(ssl, data, len, out, sizeof out);
            if (len > 0 && wolfSSL_write(ssl, out, len) <= 0)
                fail("write");
            continue;
        }
        code = wolfSSL_get_error(ssl, len);
        if (code == WOLFSSL_ERROR_ZERO_RETURN) {
            printf("closed\n");
            return;
        }
        if (code != WOLFSSL_ERROR_WANT_READ && code != WOLFSSL_ERROR_WANT_WRITE)
            fail_by(ssl, code);
        wait_for_input(1000);
    }
    fail("nobody has closed the session");
}

int main(int argc, char **argv)
{
    const char *suite = NULL, *group = NULL, *cid = NULL;
    struct sockaddr_in own = { .sin_family = AF_INET };
    socklen_t len = sizeof own;
    unsigned char identifier[255];
    int at, update = 0, groups[1];
    WOLFSSL_CTX *context;
    WOLFSSL *ssl;

    if (argc < 2)
        fail("usage");
    wolfSSL_Init();
    if (getenv("WOLFSSL_DEBUG"))
        wolfSSL_Debugging_ON();
    context = wolfSSL_CTX_new(strcmp(argv[1], "1.3") == 0   ? wolfDTLSv1_3_server_method()
                              : strcmp(argv[1], "1.2") == 0 ? wolfDTLSv1_2_server_method()
                                                            : wolfDTLS_server_method());
    if (!context)
        fail("usage");
    wolfSSL_CTX_set_verify(context, WOLFSSL_VERIFY_NONE, NULL);
    for (at = 2; at < argc; at++) {
        if (strcmp(argv[at], "--psk") == 0) {
            psk.identity = argv[++at];
            psk.key = argv[++at];
        } else if (strcmp(argv[at], "--ca") == 0) {
            wolfSSL_CTX_set_verify(context, WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
            if (wolfSSL_CTX_load_verify_locations(context, argv[++at], NULL) != WOLFSSL_SUCCESS)
                fail("authority");
        } else if (strcmp(argv[at], "--cert") == 0) {
            if (wolfSSL_CTX_use_certificate_chain_file(context, argv[++at]) != WOLFSSL_SUCCESS
                || wolfSSL_CTX_use_PrivateKey_file(context, argv[++at], WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS)
                fail("certificate");
        } else if (strcmp(argv[at], "--suite") == 0) {
            suite = argv[++at];
        } else if (strcmp(argv[at], "--group") == 0) {
            group = argv[++at];
        } else if (strcmp(argv[at], "--cid") == 0) {
            cid = argv[++at];
        } else if (strcmp(argv[at], "--update") == 0) {
            update = 1;
        } else {
            fail("usage");
        }
    }
    wolfSSL_CTX_SetIORecv(context, on_read);
    wolfSSL_CTX_SetIOSend(context, on_write);
    if (suite && wolfSSL_CTX_set_cipher_list(context, suite) != WOLFSSL_SUCCESS)
        fail("suite");
    if (psk.identity) {
        psk.suite = suite ? suite : "TLS13-AES128-GCM-SHA256";
        wolfSSL_CTX_set_psk_server_callback(context, on_psk);
        wolfSSL_CTX_set_psk_server_tls13_callback(context, on_psk_13);
    }
    groups[0] = group && strcmp(group, "x25519") == 0 ? WOLFSSL_ECC_X25519 : WOLFSSL_ECC_SECP256R1;
    if (group && wolfSSL_CTX_set_groups(context, groups, 1) != WOLFSSL_SUCCESS)
        fail("group");
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof own) != 0
        || getsockname(fd, (struct sockaddr *)&own, &len) != 0)
        fail("no socket");
    printf("port %d\n", ntohs(own.sin_port));
    fflush(stdout);
    ssl = wolfSSL_new(context);
    if (!ssl)
        fail("no session");
    wolfSSL_dtls_set_using_nonblock(ssl, 1);
    /* Its cookies are over the peer's address, which is the same all the time. */
    wolfSSL_dtls_set_peer(ssl, &own, sizeof own);
    if (strcmp(argv[1], "1.2") != 0 && wolfSSL_send_hrr_cookie(ssl, NULL, 0) != WOLFSSL_SUCCESS)
        fail("cookie");
    if (cid) {
        unsigned int size = 0, byte;
        while (sscanf(cid + 2 * size, "%2x", &byte) == 1)
            identifier[size++] = (unsigned char)byte;
        if (wolfSSL_dtls_cid_use(ssl) != WOLFSSL_SUCCESS
            || wolfSSL_dtls_cid_set(ssl, identifier, size) != WOLFSSL_SUCCESS)
            fail("identifier");
    }
    handshake(ssl);
    printf("established %s %s\n", wolfSSL_get_version(ssl), wolfSSL_get_cipher_name(ssl));
    fflush(stdout);
    serve(ssl, update);
    wolfSSL_free(ssl);
    wolfSSL_CTX_free(context);
    return 0;
}
