/* A DTLS peer that the interop tests drive: wolfSSL makes the session, standard input says what to send through it.
 *
 *   peer HOST PORT 1.2|1.3|both [--psk IDENTITY KEY] [--ca FILE] [--cert CHAIN KEY] [--suite NAME] [--group NAME]
 *        [--no-share] [--cid HEX]
 *   peer server 0 1.2|1.3|both ...   a server on a port of loopback that it prints, for one client
 *   peer version
 *
 * Lines in:  send HEX, receive MILLISECONDS, rebind (another source port), update (new keys), close
 * Lines out: listening PORT, established VERSION SUITE CID|- GROUP|-, data HEX, silence, moved, updated, closed,
 *            failed WHY
 */
#include "user_settings.h"
#include <wolfssl/ssl.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DATAGRAM_MAX 16384
#define IDENTIFIER_MAX 255

static struct {
    const char *identity, *key, *suite;
} psk;
static struct sockaddr_in server;
static int fd = -1, serving = 0;

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

static unsigned int on_psk(WOLFSSL *ssl, const char *hint, char *identity, unsigned int identity_max,
                           unsigned char *key, unsigned int key_max, const char **suite)
{
    size_t len = strlen(psk.key);
    (void)ssl;
    (void)hint;
    if (len > key_max)
        return 0;
    snprintf(identity, identity_max, "%s", psk.identity);
    memcpy(key, psk.key, len);
    *suite = psk.suite;
    return (unsigned int)len;
}

static unsigned int on_psk_12(WOLFSSL *ssl, const char *hint, char *identity, unsigned int identity_max,
                              unsigned char *key, unsigned int key_max)
{
    const char *suite;
    return on_psk(ssl, hint, identity, identity_max, key, key_max, &suite);
}

static unsigned int on_psk_server(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max)
{
    size_t len = strlen(psk.key);
    (void)ssl;
    if (len > key_max || strcmp(identity, psk.identity) != 0)
        return 0;
    memcpy(key, psk.key, len);
    return (unsigned int)len;
}

static unsigned int on_psk_server_13(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max,
                                     const char **suite)
{
    *suite = psk.suite;
    return on_psk_server(ssl, identity, key, key_max);
}

/* One client at one address: its cookie need not say which. */
static int on_cookie(WOLFSSL *ssl, unsigned char *cookie, int size, void *context)
{
    (void)ssl;
    (void)context;
    memset(cookie, 'c', (size_t)size);
    return size;
}

/* Waits for the first datagram and takes its sender for the only peer. */
static void listen_for_one(void)
{
    socklen_t len = sizeof server;
    char first;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&server, sizeof server) != 0
        || getsockname(fd, (struct sockaddr *)&server, &len) != 0)
        fail("no socket");
    printf("listening %d\n", ntohs(server.sin_port));
    fflush(stdout);
    struct pollfd on = { fd, POLLIN, 0 };
    len = sizeof server;
    if (poll(&on, 1, 60000) != 1 || recvfrom(fd, &first, 1, MSG_PEEK, (struct sockaddr *)&server, &len) < 0
        || connect(fd, (struct sockaddr *)&server, sizeof server) != 0)
        fail("nobody came");
}

static void open_socket(void)
{
    if (fd >= 0)
        close(fd);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) != 0)
        fail("no socket");
}

/* The socket is ours, so that it may be another one in the middle of a session. */
static int on_read(WOLFSSL *ssl, char *buffer, int size, void *context)
{
    ssize_t len = recv(fd, buffer, (size_t)size, 0);
    (void)ssl;
    (void)context;
    return len < 0 ? WOLFSSL_CBIO_ERR_WANT_READ : (int)len;
}

static int on_write(WOLFSSL *ssl, char *buffer, int size, void *context)
{
    (void)ssl;
    (void)context;
    /* What cannot be sent is as good as lost on its way. */
    if (send(fd, buffer, (size_t)size, 0) < 0 && errno == EWOULDBLOCK)
        return WOLFSSL_CBIO_ERR_WANT_WRITE;
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
        int result = serving ? wolfSSL_accept(ssl) : wolfSSL_connect(ssl), code;
        if (result == WOLFSSL_SUCCESS)
            return;
        code = wolfSSL_get_error(ssl, result);
        if (code != WOLFSSL_ERROR_WANT_READ && code != WOLFSSL_ERROR_WANT_WRITE)
            fail_by(ssl, code);
        if (wait_for_input(wolfSSL_dtls13_use_quick_timeout(ssl) ? 250 : wolfSSL_dtls_get_current_timeout(ssl) * 1000) == 0)
            if (wolfSSL_dtls_got_timeout(ssl) != WOLFSSL_SUCCESS)
                fail("timeout");
    }
    fail("timeout");
}

static int unhex(const char *hex, unsigned char *out, int max)
{
    int len = 0;
    unsigned int byte;
    while (len < max && sscanf(hex, "%2x", &byte) == 1) {
        out[len++] = (unsigned char)byte;
        hex += 2;
    }
    return len;
}

static void receive(WOLFSSL *ssl, int milliseconds)
{
    unsigned char data[DATAGRAM_MAX];
    struct timespec now;
    long end;
    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + milliseconds;
    for (;;) {
        int at, code, len = wolfSSL_read(ssl, data, sizeof data);
        long left;
        if (len > 0) {
            printf("data ");
            for (at = 0; at < len; at++)
                printf("%02x", data[at]);
            printf("\n");
            return;
        }
        code = wolfSSL_get_error(ssl, len);
        if (code == WOLFSSL_ERROR_ZERO_RETURN) {
            printf("closed\n");
            return;
        }
        if (code != WOLFSSL_ERROR_WANT_READ && code != WOLFSSL_ERROR_WANT_WRITE)
            fail_by(ssl, code);
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = end - (now.tv_sec * 1000 + now.tv_nsec / 1000000);
        if (left <= 0) {
            printf("silence\n");
            return;
        }
        wait_for_input((int)left);
    }
}

static void serve_input(WOLFSSL *ssl)
{
    static char line[2 * DATAGRAM_MAX + 16];
    static unsigned char data[DATAGRAM_MAX];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "send ", 5) == 0) {
            int result = wolfSSL_write(ssl, data, unhex(line + 5, data, sizeof data));
            if (result <= 0)
                fail_by(ssl, wolfSSL_get_error(ssl, result));
        } else if (strncmp(line, "receive ", 8) == 0) {
            receive(ssl, atoi(line + 8));
        } else if (strcmp(line, "rebind\n") == 0) {
            open_socket();
            printf("moved\n");
        } else if (strcmp(line, "update\n") == 0) {
            int result = wolfSSL_update_keys(ssl);
            if (result != WOLFSSL_SUCCESS && wolfSSL_get_error(ssl, result) != WOLFSSL_ERROR_WANT_READ)
                fail_by(ssl, wolfSSL_get_error(ssl, result));
            printf("updated\n");
        } else if (strcmp(line, "close\n") == 0) {
            wolfSSL_shutdown(ssl);
            return;
        } else {
            fail("what?");
        }
        fflush(stdout);
    }
}

static void tell(WOLFSSL *ssl)
{
    unsigned char cid[IDENTIFIER_MAX];
    unsigned int at, len = 0;
    const char *group = wolfSSL_get_curve_name(ssl);
    printf("established %s %s ", wolfSSL_get_version(ssl), wolfSSL_get_cipher_name(ssl));
    if (wolfSSL_dtls_cid_is_enabled(ssl) && wolfSSL_dtls_cid_get_tx_size(ssl, &len) == WOLFSSL_SUCCESS && len > 0
        && wolfSSL_dtls_cid_get_tx(ssl, cid, sizeof cid) == WOLFSSL_SUCCESS)
        for (at = 0; at < len; at++)
            printf("%02x", cid[at]);
    else
        printf("-");
    printf(" %s\n", group ? group : "-");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *versions, *suite = NULL, *group = NULL, *cid = NULL;
    unsigned char identifier[IDENTIFIER_MAX];
    int at, no_share = 0, groups[1], verify = WOLFSSL_VERIFY_NONE;
    WOLFSSL_METHOD *method;
    WOLFSSL_CTX *context;
    WOLFSSL *ssl;

    if (argc == 2 && strcmp(argv[1], "version") == 0) {
        printf("%s\n", wolfSSL_lib_version());
        return 0;
    }
    if (argc < 4)
        fail("usage");
    wolfSSL_Init();
    if (getenv("WOLFSSL_DEBUG"))
        wolfSSL_Debugging_ON();
    server.sin_family = AF_INET;
    server.sin_port = htons((unsigned short)atoi(argv[2]));
    versions = argv[3];
    serving = strcmp(argv[1], "server") == 0;
    if (serving)
        method = strcmp(versions, "1.3") == 0   ? wolfDTLSv1_3_server_method()
                 : strcmp(versions, "1.2") == 0 ? wolfDTLSv1_2_server_method()
                                                : wolfDTLS_server_method();
    else
        method = strcmp(versions, "1.3") == 0   ? wolfDTLSv1_3_client_method()
                 : strcmp(versions, "1.2") == 0 ? wolfDTLSv1_2_client_method()
                                                : wolfDTLS_client_method();
    context = wolfSSL_CTX_new(method);
    if (!context || (!serving && inet_pton(AF_INET, argv[1], &server.sin_addr) != 1))
        fail("usage");
    for (at = 4; at < argc; at++) {
        if (strcmp(argv[at], "--psk") == 0) {
            psk.identity = argv[++at];
            psk.key = argv[++at];
        } else if (strcmp(argv[at], "--ca") == 0) {
            verify = WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT;
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
        } else if (strcmp(argv[at], "--no-share") == 0) {
            no_share = 1;
        } else if (strcmp(argv[at], "--cid") == 0) {
            cid = argv[++at];
        } else {
            fail("usage");
        }
    }
    wolfSSL_CTX_set_verify(context, verify, NULL);
    wolfSSL_CTX_SetIORecv(context, on_read);
    wolfSSL_CTX_SetIOSend(context, on_write);
    wolfSSL_CTX_SetGenCookie(context, on_cookie);
    if (suite && wolfSSL_CTX_set_cipher_list(context, suite) != WOLFSSL_SUCCESS)
        fail("suite");
    psk.suite = suite ? suite : "TLS13-AES128-GCM-SHA256";
    /* A server without a certificate is refused unless it has these by now. */
    if (psk.identity && serving) {
        wolfSSL_CTX_set_psk_server_tls13_callback(context, on_psk_server_13);
        if (strcmp(versions, "1.3") != 0)
            wolfSSL_CTX_set_psk_server_callback(context, on_psk_server);
    }
    groups[0] = group && strcmp(group, "x25519") == 0 ? WOLFSSL_ECC_X25519 : WOLFSSL_ECC_SECP256R1;
    if (serving && group && wolfSSL_CTX_set_groups(context, groups, 1) != WOLFSSL_SUCCESS)
        fail("group");
    ssl = wolfSSL_new(context);
    if (!ssl)
        fail("no session");
    if (psk.identity && !serving) {
        wolfSSL_set_psk_client_tls13_callback(ssl, on_psk);
        if (strcmp(versions, "1.3") != 0)
            wolfSSL_set_psk_client_callback(ssl, on_psk_12);
    }
    if (serving)
        listen_for_one();
    else
        open_socket();
    wolfSSL_dtls_set_peer(ssl, &server, sizeof server);
    wolfSSL_dtls_set_using_nonblock(ssl, 1);
    if (no_share && wolfSSL_NoKeyShares(ssl) != WOLFSSL_SUCCESS)
        fail("no share");
    if (!serving && group && wolfSSL_UseKeyShare(ssl, (unsigned short)groups[0]) != WOLFSSL_SUCCESS)
        fail("group");
    if (serving && strcmp(versions, "1.2") != 0 && wolfSSL_send_hrr_cookie(ssl, NULL, 0) != WOLFSSL_SUCCESS)
        fail("cookie");
    if (cid) {
        unsigned int len = (unsigned int)unhex(cid, identifier, sizeof identifier);
        if (wolfSSL_dtls_cid_use(ssl) != WOLFSSL_SUCCESS || wolfSSL_dtls_cid_set(ssl, identifier, len) != WOLFSSL_SUCCESS)
            fail("identifier");
    }
    handshake(ssl);
    tell(ssl);
    serve_input(ssl);
    wolfSSL_free(ssl);
    wolfSSL_CTX_free(context);
    return 0;
}
