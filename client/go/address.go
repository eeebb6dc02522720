package sparsefw

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/resolver"
)

// An IPv6 address has brackets around it: otherwise its last group could be taken for the port.
var hostPort = regexp.MustCompile(`^(?:\[([^\]\[]+)\]|[^\]\[/:\s\pZ]+):([0-9]{1,5})$`)

// splitAddresses is the addresses in "host:port,host:port". gRPC would look for one that is none, and report
// a server that is down.
func splitAddresses(text string) ([]string, error) {
	addresses := strings.Split(text, ",")
	for _, address := range addresses {
		if isNamed(address) || isHostPort(address) {
			continue
		}
		if address == "" {
			address = text
		}
		return nil, argument(`an address must be HOST:PORT with a port in [1, 65535], or "unix:/path", or several with `+
			"commas between them; got %q", address)
	}
	return addresses, nil
}

// isNamed: its scheme says how this gRPC finds it. gRPC itself checks what is behind the scheme.
func isNamed(address string) bool {
	scheme, rest, _ := strings.Cut(address, ":")
	return rest != "" && (scheme == "unix" || resolver.Get(scheme) != nil)
}

func isHostPort(address string) bool {
	found := hostPort.FindStringSubmatch(address)
	if found == nil {
		return false
	}
	if port, err := strconv.Atoi(found[2]); err != nil || port < 1 || port > 65535 {
		return false
	}
	if found[1] == "" {
		return true
	}
	ip, err := netip.ParseAddr(found[1])
	return err == nil && ip.Is6()
}

// target is the address for gRPC, which in old versions knows "dns:" with slashes only.
func target(address string) string {
	const scheme = "dns:"
	if strings.HasPrefix(address, scheme) && !strings.HasPrefix(address, scheme+"//") && !isHostPort(address) {
		return scheme + "///" + address[len(scheme):]
	}
	return address
}

// isLocal: a socket of this machine, whatever names resolve to.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
