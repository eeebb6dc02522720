package sparsefw

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	v1 "github.com/sparsefw/sparsefw/client/go/v1"
)

// Client is a connection to a server.
type Client struct {
	address   string
	options   options
	endpoints *endpoints
}

// Dial connects to a server: "host:port", "unix:/path", or several with commas between them, of which
// the first that can be reached is used until its connection is lost. Without an option for TLS the
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
	var err error
	if c.endpoints, err = newEndpoints(address, &c.options); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.options.connectTimeout)
	defer cancel()
	if c.endpoints.connect(limited) {
		return c, nil
	}
	c.Close()
	if ctx.Err() != nil {
		return nil, asError(ctx, ctx.Err())
	}
	return nil, refuse(codes.Unavailable, "UNREACHABLE", "%s: no connection within %s", address,
		c.options.connectTimeout)
}

// Close ends the connection. Calls that are under way, and later ones, end with CLOSED.
func (c *Client) Close() error { return c.endpoints.close() }

// Address is what Dial was given.
func (c *Client) Address() string { return c.address }

// The clients of the address in use; another one may be by the next call.
func (c *Client) tensors() v1.TensorServiceClient { return c.endpoints.use().tensors }
func (c *Client) jobs() v1.PruneServiceClient     { return c.endpoints.use().jobs }

// outgoing adds what every call carries.
func (c *Client) outgoing(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", c.options.traceparent)
	if c.options.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.options.token)
	}
	return ctx
}
