package sparsefw

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	gbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Client is a connection to a server.
type Client struct {
	address string
	options options
	conn    *grpc.ClientConn
	tensors v1.TensorServiceClient
	jobs    v1.PruneServiceClient
}

// Dial connects to a server: "host:port", "unix:/path", or several of "host:port" with commas
// between them, of which the first that can be reached is used. Without an option for TLS the
// connection is plain text.
//
// Errors: CLIENT_ARGUMENT; UNREACHABLE when no address answers within the connect timeout; that of
// the context.
func Dial(ctx context.Context, address string, opts ...Option) (*Client, error) {
	c := &Client{address: address, options: defaults()}
	for _, option := range opts {
		if err := option(&c.options); err != nil {
			return nil, err
		}
	}
	if c.options.traceparent == "" {
		c.options.traceparent = newTraceparent()
	}
	endpoints := strings.Split(address, ",")
	for _, endpoint := range endpoints {
		if endpoint == "" {
			return nil, argument("an address must be HOST:PORT, or several with commas between them; got %q",
				address)
		}
	}
	if err := c.checkToken(endpoints); err != nil {
		return nil, err
	}
	conn, err := grpc.DialContext(ctx, c.target(endpoints), c.dialOptions(endpoints)...)
	if ctx.Err() != nil {
		if err == nil {
			conn.Close()
		}
		return nil, asError(ctx, ctx.Err())
	}
	if err != nil {
		return nil, argument("%q must be the address of a server: %v", address, err)
	}
	c.conn = conn
	c.tensors, c.jobs = v1.NewTensorServiceClient(conn), v1.NewPruneServiceClient(conn)
	if err := c.connect(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection, and every call that is under way.
func (c *Client) Close() error { return c.conn.Close() }

// Address is what Dial was given.
func (c *Client) Address() string { return c.address }

const scheme = "sparsefw"

func (c *Client) target(endpoints []string) string {
	if len(endpoints) > 1 {
		return scheme + ":///" + endpoints[0]
	}
	return endpoints[0]
}

func (c *Client) dialOptions(endpoints []string) []grpc.DialOption {
	result := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: gbackoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: c.options.connectTimeout,
		}),
	}
	if c.options.tls != nil {
		result = append(result, grpc.WithTransportCredentials(credentials.NewTLS(c.options.tls.Clone())))
	} else {
		result = append(result, grpc.WithInsecure())
	}
	if len(endpoints) > 1 {
		all := manual.NewBuilderWithScheme(scheme)
		var state resolver.State
		for _, endpoint := range endpoints {
			// What the certificate is checked against: the name of this address.
			name := endpoint
			if host, _, err := net.SplitHostPort(endpoint); err == nil {
				name = host
			}
			state.Addresses = append(state.Addresses, resolver.Address{Addr: endpoint, ServerName: name})
		}
		all.InitialState(state)
		result = append(result, grpc.WithResolvers(all))
	}
	return result
}

func isLocal(endpoint string) bool {
	if strings.HasPrefix(endpoint, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func (c *Client) checkToken(endpoints []string) error {
	if c.options.token == "" || c.options.tls != nil {
		return nil
	}
	for _, endpoint := range endpoints {
		if !isLocal(endpoint) {
			return argument("a token must be sent over TLS or to this machine; %s is neither", endpoint)
		}
	}
	return nil
}

func (c *Client) connect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, c.options.connectTimeout)
	defer cancel()
	for {
		state := c.conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !c.conn.WaitForStateChange(limited, state) {
			if ctx.Err() != nil {
				return asError(ctx, ctx.Err())
			}
			return refuse(codes.Unavailable, "UNREACHABLE", "%s: no connection within %s", c.address,
				c.options.connectTimeout)
		}
	}
}

// outgoing adds what every call carries.
func (c *Client) outgoing(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", c.options.traceparent)
	if c.options.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.options.token)
	}
	return ctx
}
