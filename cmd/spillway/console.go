package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/console"
)

// defaultConsoleAddr is where `spillway console` listens.
const defaultConsoleAddr = "127.0.0.1:7790"

func newConsoleCommand() *cobra.Command {
	var server, listen string
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the web console of a node of this machine in a browser",
		Long: `Serve the web console of a node that runs on this machine at a loopback address, until interrupted. The printed URL contains a
token that is valid as long as the command runs; its holder has this user's access to the node.

A node with admin.listen serves the same console there, at https://HOST:PORT/console/, with a login by a token of admin.grants
or an operator's certificate in the browser.`,
		Example: "  spillway console\n  spillway console --server unix:///run/spillway-global/spillway/global-g1.sock --listen 127.0.0.1:9000",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := chooseConsoleSocket(cmd.Context(), server)
			if err != nil {
				return err
			}
			c, err := startConsole(listen, socket)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "console of %s:\n  %s\nCtrl-C stops it.\n", socket, c.URL())
			<-cmd.Context().Done()
			c.Stop()
			return nil
		},
	}
	cmd.Flags().StringVar(&server, "server", os.Getenv("SPILLWAY_SERVER"), "socket of the node: unix:///path/to.sock (default $SPILLWAY_SERVER, then the first of this user's nodes: a global node, else a gateway, else a local instance)")
	cmd.Flags().StringVar(&listen, "listen", defaultConsoleAddr, "loopback address and port to serve at; port 0 chooses a free one")
	return cmd
}

// chooseConsoleSocket returns the path of the socket of the node to show.
func chooseConsoleSocket(ctx context.Context, server string) (string, error) {
	if strings.HasPrefix(server, "https://") {
		return "", fmt.Errorf("%s serves its console itself: open %s%s in a browser", server, strings.TrimRight(server, "/"), console.Path)
	}
	if server != "" {
		return strings.TrimPrefix(server, "unix://"), nil
	}
	nodes, err := admin.ListRunning(ctx)
	if err != nil {
		return "", err
	}
	for _, role := range []string{"global", "regional", "local"} {
		for i := range nodes {
			if nodes[i].Role == role {
				return nodes[i].Socket, nil
			}
		}
	}
	return "", errors.New("no node found: this user runs no Spillway node on this machine\nhint: start one with `spillway demo`, or name its socket with --server")
}

// localConsole serves a node's console at a loopback address to the holder of a token. The node sees the user of this
// process as the caller.
type localConsole struct {
	listener   net.Listener
	server     *http.Server
	token      string
	cookieName string
}

// startConsole serves the console of the node that listens on a socket.
func startConsole(listen, socket string) (*localConsole, error) {
	addr, err := netip.ParseAddrPort(listen)
	if err != nil || !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("--listen %s: write a loopback address and a port, such as %s: the connection is not encrypted", listen, defaultConsoleAddr)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listening for the console: %w\nhint: choose another port with --listen 127.0.0.1:0", err)
	}
	var secret [24]byte
	if _, err := rand.Read(secret[:]); err != nil {
		l.Close()
		return nil, fmt.Errorf("creating a token: %w", err)
	}
	c := &localConsole{listener: l, token: base64.RawURLEncoding.EncodeToString(secret[:])}
	// Cookies are shared by all ports of an address, so the name contains the port.
	c.cookieName = fmt.Sprintf("spillway-%d", l.Addr().(*net.TCPAddr).Port)
	c.server = &http.Server{Handler: c.newHandler(socket), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	go c.server.Serve(l) // ends by Stop
	return c, nil
}

// URL returns the address to open, with the token in its fragment: browsers do not send that to servers.
func (c *localConsole) URL() string {
	return "http://" + c.listener.Addr().String() + console.Path + "#token=" + c.token
}

// Stop closes the listener and all connections.
func (c *localConsole) Stop() { c.server.Close() }

func (c *localConsole) newHandler(socket string) http.Handler {
	login := &console.Login{CookieName: c.cookieName, CheckToken: func(token string) (console.Caller, bool) {
		return console.Caller{Name: "local", Role: admin.RoleAdmin.String()}, c.isToken(token)
	}}
	mux := http.NewServeMux()
	login.AddRoutes(mux)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "node"})
			r.Out.Host = r.In.Host // the node compares it with the Origin
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, `{"error":{"message":"the node does not answer","hint":"is it running? spillway status shows the nodes of this machine"}}`)
		},
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if needsLogin(r) && !c.isToken(console.TokenOf(r, c.cookieName)) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"message":"authentication required","hint":"open the URL that spillway console printed"}}`)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	own := c.listener.Addr().String()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != own { // a name that another site points at this address (DNS rebinding)
			http.Error(w, "open the URL that spillway console printed", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// needsLogin is false for the static files of the console.
func needsLogin(r *http.Request) bool {
	name, isPage := strings.CutPrefix(r.URL.Path, console.Path)
	if r.Method != http.MethodGet || !isPage && r.URL.Path != "/" {
		return true
	}
	return name == "session" || name == "stream"
}

func (c *localConsole) isToken(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(c.token)) == 1
}
