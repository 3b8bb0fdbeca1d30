package config

import "fmt"

// maxProxied is the largest allowed max_proxied: each request holds two connections.
const maxProxied = 100_000

// checkMaxProxied checks http.max_proxied.
func (k *configChecker) checkMaxProxied(c *RedirectEndpoint) {
	if c.MaxProxied < 1 || c.MaxProxied > maxProxied {
		k.addProblem("$.http.max_proxied", fmt.Sprintf("http.max_proxied %d is out of range", c.MaxProxied), fmt.Sprintf("write 1 to %d; a service's redirect_proxy in the spec turns passing on on", maxProxied))
	}
}
