package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
)

// callTimeout bounds one call to a node's admin interface.
const callTimeout = 10 * time.Second

// target is where an operator's command goes.
type target struct {
	servers          string
	cert, key, roots string
	token            string // its file
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.servers, "server", os.Getenv("SPILLWAY_SERVER"), "admin addresses to try in turn, comma-separated: unix:///path/to.sock or https://host:port\n(default $SPILLWAY_SERVER, then the sockets of global nodes running here, or of a zone alone)")
	f.StringVar(&t.cert, "cert", os.Getenv("SPILLWAY_CERT"), "operator certificate for https servers (PEM; default $SPILLWAY_CERT)")
	f.StringVar(&t.key, "key", os.Getenv("SPILLWAY_KEY"), "its key (PEM; default $SPILLWAY_KEY)")
	f.StringVar(&t.token, "token-file", os.Getenv("SPILLWAY_TOKEN_FILE"), "file of a bearer token for https servers, instead of a certificate (default $SPILLWAY_TOKEN_FILE)")
	f.StringVar(&t.roots, "ca", os.Getenv("SPILLWAY_CA"), "the CA that signed the nodes' certificates (PEM; default $SPILLWAY_CA)")
}

// call runs f against the first server that takes a connection. Nothing is sent to a server before that, so a write is
// never sent twice.
func (t *target) call(ctx context.Context, f func(context.Context, *admin.Client) error) error {
	servers := t.list()
	if len(servers) == 0 {
		return errors.New("no node to ask: nothing is running here\nhint: start one with `spillway demo`, or name one with --server or SPILLWAY_SERVER")
	}
	certs, err := t.certs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var silent []string
	for _, s := range servers {
		if err := reach(ctx, s); err != nil {
			silent = append(silent, err.Error())
			continue
		}
		c, err := t.dial(s, certs)
		if err != nil {
			return err
		}
		defer c.Close()
		return f(ctx, c)
	}
	return fmt.Errorf("no node takes connections:\n  %s\nhint: is one running? `spillway demo` starts a planet", strings.Join(silent, "\n  "))
}

// dial uses the token for https servers where one is given.
func (t *target) dial(server string, certs *identity.Certs) (*admin.Client, error) {
	if t.token == "" || !strings.HasPrefix(server, "https://") {
		return admin.Dial(server, certs)
	}
	token, err := os.ReadFile(t.token)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	pem, err := os.ReadFile(t.roots)
	if err != nil {
		return nil, fmt.Errorf("reading the CA, which --token-file needs too (--ca): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", t.roots)
	}
	return admin.DialToken(server, roots, strings.TrimSpace(string(token)))
}

// reach tries a connection to a server without saying anything on it.
func reach(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("server %q: %w", server, err)
	}
	network, addr := "tcp", u.Host
	if u.Scheme == "unix" {
		network, addr = "unix", u.Path
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	return c.Close()
}

// certs loads the operator's certificate where one is given; unix sockets need none.
func (t *target) certs() (*identity.Certs, error) {
	if t.cert == "" && t.key == "" && (t.roots == "" || t.token != "") {
		return nil, nil
	}
	return identity.Load(identity.Files{Cert: t.cert, Key: t.key, CA: t.roots}, nil)
}

// list is the servers named, or else the sockets of the global nodes that run on this machine, or of the local instances
// where there are none.
func (t *target) list() []string {
	if t.servers != "" {
		return strings.Split(t.servers, ",")
	}
	found, _ := filepath.Glob(filepath.Join(admin.RuntimeDir(), "global-*.sock"))
	if len(found) == 0 {
		found, _ = filepath.Glob(filepath.Join(admin.RuntimeDir(), "local-*.sock"))
	}
	sort.Strings(found)
	for i, s := range found {
		found[i] = "unix://" + s
	}
	return found
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "table or json")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "table" && *output != "json" {
			return fmt.Errorf("unknown output %q: write -o table or -o json", *output)
		}
		return nil
	}
}

// printJSON writes v as the admin interface sent it.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
