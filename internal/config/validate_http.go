package config

import "fmt"

// maxProxied is the most requests that a node may be told to pass on at once: each holds two connections.
const maxProxied = 100_000

// proxy bounds what a global node passes on.
func (k *checker) proxy(c *Redirect) {
	if c.MaxProxied < 1 || c.MaxProxied > maxProxied {
		k.bad("$.http.max_proxied", fmt.Sprintf("http.max_proxied %d is out of range", c.MaxProxied), fmt.Sprintf("write 1 to %d; a service's redirect_proxy in the spec turns passing on on", maxProxied))
	}
}
