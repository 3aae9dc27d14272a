// The client of Eclipse Paho for Go behind the line protocol of mqtt_programs.py.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
)

// pause is between two attempts of a client that connects again by itself.
const pause = 200 * time.Millisecond

// patience is how long an answer of the gateway may take on a busy machine.
const patience = 60 * time.Second

type will struct {
	Topic, Data string
}

type request struct {
	ID                          int
	Do, Name                    string
	Transport, Host, Ca, Client string
	Port                        int
	Expiry                      uint32
	Returns                     bool
	Will                        *will
	Filter, Topic               string
	Data                        []string
	Qos                         byte
}

type answer struct {
	Done    int     `json:"done"`
	Error   *string `json:"error"`
	Session bool    `json:"session"`
}

type arrival struct {
	Name string `json:"name"`
	Data string `json:"data"`
	Qos  byte   `json:"qos"`
}

var (
	out         sync.Mutex
	connections sync.Map
)

func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(text))
}

func main() {
	say(map[string]any{"ready": true, "version": version()})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		go func() {
			session, err := carryOut(asked)
			done := answer{Done: asked.ID, Session: session}
			if err != nil {
				text := err.Error()
				done.Error = &text
			}
			say(done)
		}()
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/eclipse/paho.golang" {
			return module.Version
		}
	}
	return "?"
}

func carryOut(asked request) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if asked.Do == "open" {
		return open(ctx, asked)
	}
	found, ok := connections.Load(asked.Name)
	if !ok {
		return false, fmt.Errorf("%s is not open", asked.Name)
	}
	connection := found.(*autopaho.ConnectionManager)
	switch asked.Do {
	case "subscribe":
		_, err := connection.Subscribe(ctx, &paho.Subscribe{
			Subscriptions: []paho.SubscribeOptions{{Topic: asked.Filter, QoS: asked.Qos}}})
		return false, err
	case "publish":
		for _, data := range asked.Data {
			message := &paho.Publish{Topic: asked.Topic, QoS: asked.Qos, Payload: []byte(data)}
			if _, err := connection.Publish(ctx, message); err != nil {
				return false, err
			}
		}
		return false, nil
	default:
		return false, connection.Disconnect(ctx)
	}
}

// open connects; a connection that is refused is not tried again.
func open(ctx context.Context, asked request) (bool, error) {
	address, err := url.Parse(fmt.Sprintf("%s://%s:%d/mqtt", asked.Transport, asked.Host, asked.Port))
	if err != nil {
		return false, err
	}
	pem, err := os.ReadFile(asked.Ca)
	if err != nil {
		return false, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	up, refused := make(chan bool, 1), make(chan error, 1)
	living, end := context.WithCancel(context.Background())
	config := autopaho.ClientConfig{
		ServerUrls:                    []*url.URL{address},
		TlsCfg:                        &tls.Config{RootCAs: authorities},
		KeepAlive:                     60,
		CleanStartOnInitialConnection: asked.Expiry == 0,
		SessionExpiryInterval:         asked.Expiry,
		OnConnectionUp: func(_ *autopaho.ConnectionManager, connack *paho.Connack) {
			select {
			case up <- connack.SessionPresent:
			default:
			}
		},
		OnConnectionDown: func() bool { return asked.Returns },
		ReconnectBackoff: autopaho.NewConstantBackoff(pause),
		OnConnectError: func(err error) {
			select {
			case refused <- err:
			default:
			}
		},
		ClientConfig: paho.ClientConfig{
			ClientID: asked.Client,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				func(came paho.PublishReceived) (bool, error) {
					say(arrival{asked.Name, string(came.Packet.Payload), came.Packet.QoS})
					return true, nil
				}},
		},
	}
	if asked.Will != nil {
		config.WillMessage = &paho.WillMessage{
			Topic: asked.Will.Topic, Payload: []byte(asked.Will.Data), QoS: 1, Retain: true}
	}
	connection, err := autopaho.NewConnection(living, config)
	if err != nil {
		end()
		return false, err
	}
	select {
	case present := <-up:
		connections.Store(asked.Name, connection)
		return present, nil
	case err = <-refused:
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	return false, err
}
