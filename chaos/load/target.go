package load

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Target is where requests are sent: to fixed URLs, or to a service that is resolved by DNS servers.
type Target struct {
	// URLs are base URLs ("http://127.0.0.1:8080"), used in turn. Set either these or Service.
	URLs []string
	// Service is the name to resolve ("chat.api.example").
	Service string
	// DNS are the servers to query, "127.0.0.1:5300" or "[::1]:53", used in turn; port 53 by default.
	DNS []string
	// DNSTimeout bounds the answer of a server. Default 1s.
	DNSTimeout time.Duration
	// Scheme and Port complete the service's URL. Defaults http and 80, or 443 for https.
	Scheme string
	Port   int
}

// Client is a client with its own location.
type Client struct {
	// Name is used in logs.
	Name string
	// Source is the source address of DNS queries and connections. Invalid means any.
	Source netip.Addr
}

// endpoint is one base URL and the address, host:port, to connect to for it.
type endpoint struct {
	base *url.URL
	addr string
}

// resolveBases completes the target and returns its base URLs.
func (t *Target) resolveBases() ([]*url.URL, error) {
	if (len(t.URLs) > 0) == (t.Service != "") {
		return nil, errors.New("target: give either URLs or a service to resolve")
	}
	if t.Service != "" {
		base, err := t.checkService()
		return []*url.URL{base}, err
	}
	var list []*url.URL
	for _, s := range t.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("target: %q is not a base URL such as http://127.0.0.1:8080", s)
		}
		list = append(list, u)
	}
	return list, nil
}

func (t *Target) checkService() (*url.URL, error) {
	if len(t.DNS) == 0 {
		return nil, errors.New("target: a service needs DNS servers")
	}
	servers := make([]string, len(t.DNS))
	for i, s := range t.DNS {
		servers[i] = s
		if _, err := netip.ParseAddr(s); err == nil {
			servers[i] = net.JoinHostPort(s, "53")
		} else if _, _, err := net.SplitHostPort(s); err != nil {
			return nil, fmt.Errorf("target: DNS server %q: write it as 127.0.0.1:53", s)
		}
	}
	t.DNS = servers
	if t.DNSTimeout <= 0 {
		t.DNSTimeout = time.Second
	}
	switch t.Scheme {
	case "":
		t.Scheme = "http"
	case "http", "https":
	default:
		return nil, fmt.Errorf("target: scheme %q: use http or https", t.Scheme)
	}
	if t.Port == 0 {
		t.Port = defaultPort(t.Scheme)
	}
	if t.Port < 1 || t.Port > 65535 {
		return nil, fmt.Errorf("target: port %d: use 1 to 65535", t.Port)
	}
	return &url.URL{Scheme: t.Scheme, Host: net.JoinHostPort(t.Service, strconv.Itoa(t.Port))}, nil
}

func defaultPort(scheme string) int {
	if scheme == "https" {
		return 443
	}
	return 80
}

// portOf returns a URL's port as text.
func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return strconv.Itoa(defaultPort(u.Scheme))
}
