/* tinydtls (DTLS 1.2, TLS_PSK_WITH_AES_128_CCM_8) behind the line protocol of clients_dtls.py:
 *
 *     tinydtls-peer client HOST PORT --psk IDENTITY KEY | server --psk IDENTITY KEY | version
 *
 * A server prints `listening PORT` and takes one client. Lines in: send HEX, receive MILLISECONDS, close. Lines out:
 * established DTLSv1.2 SUITE - -, data HEX, silence, closed, failed WHY. */

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tinydtls.h"
#include "dtls.h"
#include "dtls_debug.h"

/* A handshake: as long as a client repeats itself. */
enum { PATIENCE = 20000, DATAGRAM = 2000 };

static const char *identity, *key;
static int fd;
static session_t peer;
static struct {
    int established, over, level;
    unsigned short code;
    unsigned char data[DATAGRAM];
    size_t length;
    int has_data;
} state;

static void fail(const char *why) {
    printf("failed %s\n", why);
    exit(1);
}

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static int on_write(struct dtls_context_t *context, session_t *to, uint8 *data, size_t length) {
    (void)context;
    return sendto(fd, data, length, 0, &to->addr.sa, to->size);
}

static int on_read(struct dtls_context_t *context, session_t *from, uint8 *data, size_t length) {
    (void)context, (void)from;
    if (!state.has_data && length <= sizeof state.data) {
        memcpy(state.data, data, length);
        state.length = length;
        state.has_data = 1;
    }
    return 0;
}

static int on_event(struct dtls_context_t *context, session_t *from, dtls_alert_level_t level, unsigned short code) {
    (void)context;
    if (level == 0 && code == DTLS_EVENT_CONNECTED) {
        peer = *from;
        state.established = 1;
    } else if (level > 0) {
        state.over = 1;
        state.code = code;
    }
    return 0;
}

static int on_psk(struct dtls_context_t *context, const session_t *from, dtls_credentials_type_t type,
                  const unsigned char *id, size_t id_length, unsigned char *result, size_t room) {
    (void)context, (void)from;
    const char *wanted = type == DTLS_PSK_IDENTITY ? identity : key;
    if (type == DTLS_PSK_HINT)
        return 0;
    if (type == DTLS_PSK_KEY && (id_length != strlen(identity) || memcmp(id, identity, id_length)))
        return dtls_alert_fatal_create(DTLS_ALERT_DECRYPT_ERROR);
    if (strlen(wanted) > room)
        return dtls_alert_fatal_create(DTLS_ALERT_INTERNAL_ERROR);
    memcpy(result, wanted, strlen(wanted));
    return strlen(wanted);
}

static dtls_handler_t handler = {.write = on_write, .read = on_read, .event = on_event, .get_psk_info = on_psk};

/* Takes in datagrams and repeats what was lost, until `*done`, or the time is up. */
static void turn(dtls_context_t *context, const int *done, long milliseconds) {
    long end = now() + milliseconds;
    while (!*done && !state.over && now() < end) {
        clock_time_t next = 0;
        dtls_check_retransmit(context, &next);
        long wait = end - now();
        wait = wait > 250 ? 250 : wait < 0 ? 0 : wait;
        struct timeval patience = {0, wait * 1000};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (select(fd + 1, &set, NULL, NULL, &patience) <= 0)
            continue;
        session_t from;
        unsigned char datagram[DATAGRAM];
        memset(&from, 0, sizeof from);
        from.size = sizeof from.addr;
        ssize_t length = recvfrom(fd, datagram, sizeof datagram, 0, &from.addr.sa, &from.size);
        if (length > 0)
            dtls_handle_message(context, &from, datagram, length);
    }
}

static void serve(dtls_context_t *context) {
    static char line[2 * DATAGRAM + 16];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "send ", 5)) {
            unsigned char data[DATAGRAM];
            size_t length = 0;
            for (const char *hex = line + 5; hex[0] && hex[1] && length < sizeof data; hex += 2)
                data[length++] = strtol((char[]){hex[0], hex[1], 0}, NULL, 16);
            dtls_write(context, &peer, data, length);
        } else if (!strncmp(line, "receive ", 8)) {
            turn(context, &state.has_data, atol(line + 8));
            if (state.has_data) {
                printf("data ");
                for (size_t at = 0; at < state.length; at++)
                    printf("%02x", state.data[at]);
                printf("\n");
                state.has_data = 0;
            } else {
                puts(state.over ? "closed" : "silence");
            }
        } else if (!strcmp(line, "close")) {
            dtls_close(context, &peer);
            return;
        }
    }
}

static void connect_to(dtls_context_t *context, const char *host, const char *port) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *found;
    if (getaddrinfo(host, port, &hints, &found))
        fail("no such host");
    memset(&peer, 0, sizeof peer);
    peer.size = found->ai_addrlen;
    memcpy(&peer.addr.sa, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (dtls_connect(context, &peer) < 0)
        fail("connect");
}

static void listen_here(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || getsockname(fd, (struct sockaddr *)&here, &length))
        fail("bind");
    printf("listening %d\n", ntohs(here.sin_port));
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 2 && !strcmp(words[1], "version")) {
        puts(PACKAGE_VERSION);
        return 0;
    }
    if (count < 5 || strcmp(words[count - 3], "--psk"))
        fail("client HOST PORT --psk IDENTITY KEY | server --psk IDENTITY KEY | version");
    identity = words[count - 2];
    key = words[count - 1];
    dtls_init();
    dtls_set_log_level(DTLS_LOG_EMERG);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    dtls_context_t *context = dtls_new_context(&fd);
    if (fd < 0 || !context)
        fail("no context");
    dtls_set_handler(context, &handler);
    if (!strcmp(words[1], "client"))
        connect_to(context, words[2], words[3]);
    else
        listen_here();
    turn(context, &state.established, PATIENCE);
    if (!state.established) {
        printf("failed alert %d\n", state.over ? state.code : -1);
        return 1;
    }
    puts("established DTLSv1.2 TLS_PSK_WITH_AES_128_CCM_8 - -");
    serve(context);
    dtls_free_context(context);
    return 0;
}
