package local

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/network"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
	"github.com/spillway-lb/spillway/local/warm"
)

// defaultPrefixIndex bounds the memory of the prefix index, in bytes.
const defaultPrefixIndex = 128 << 20

// Config of an Agent.
type Config struct {
	// Name, Region and Zone are the instance's path; the certificate must say the same.
	Name, Region, Zone string
	// Dir keeps the last directive across restarts; empty keeps nothing.
	Dir string
	// Listen is where requests are taken, "host:port".
	Listen string
	// Network stands in for the system's, towards those who ask, workers and gateways, where a zone is run inside one
	// process; nil: the system's.
	Network network.Network
	// Advertise is where gateways reach Listen. Default: the bound address.
	Advertise string
	// Plain serves HTTP without TLS to anybody, for a zone that stands alone.
	Plain bool
	// NoFast has net/http serve everything, and call the workers.
	NoFast bool
	// Certs are this instance's; needed unless Plain and without Gateways.
	Certs *identity.Certs
	// InternalCerts says that Certs were made for one process that holds the gateway too: workers that register are not
	// shown them but RegistrationCerts, or no TLS where those are nil.
	InternalCerts     bool
	RegistrationCerts *identity.Certs
	// Gateways are the uplink addresses of every gateway of the region.
	Gateways []string
	// Workers are the static ones, WorkersFile a watched file of more.
	Workers     []discover.Worker
	WorkersFile string
	// Discover finds workers in DNS, Registration lets them sign themselves in.
	Discover     config.Discover
	Registration config.Registration
	// ScrapeInterval between two looks at a worker, jittered by a tenth. Default 1s.
	ScrapeInterval time.Duration
	// UplinkInterval between statements to the gateways. Default 250ms.
	UplinkInterval time.Duration
	// ResumeTexts bounds the memory of texts from which streams could be resumed, in bytes. Zero means 64 MiB.
	ResumeTexts int64
	// BodyMemory bounds the request bodies in memory, in bytes. Zero means 1 GiB.
	BodyMemory int64
	// BodyTimeout bounds the time in which a body must arrive. Zero means 30 s.
	BodyTimeout time.Duration
	// PrefixIndex bounds the memory of the prefix index, in bytes. Default 128 MiB.
	PrefixIndex int
	// Policy overrides the spec's choice of policy; empty follows the spec.
	Policy string
	// Spec in force until the first directive; nil means defaults.
	Spec *spec.Spec
	// SpecFile is read and watched by a zone that stands alone, instead of Spec.
	SpecFile string
	// Queue and Health bound and time the two; zero fields take their defaults.
	Queue  queue.Config
	Health health.Config
	// Warm bounds and times the loading of models; zero fields take their defaults.
	Warm warm.Config
	// AdminSocket, AdminListen and MetricsListen open the admin interface; empty ones stay shut.
	AdminSocket, AdminListen, MetricsListen string
	// AdminGrants are what callers of AdminListen may do.
	AdminGrants []admin.Grant
	// Seed makes the same requests come to the same decisions, in tests and labs; 0 draws from the system. In production nobody
	// may foresee what is drawn: there is no key for it.
	Seed uint64
	// Version is shown in status.
	Version string
	// Registry for metrics; nil makes one.
	Registry *prometheus.Registry
	// Log receives what an operator should know; nil discards it.
	Log *slog.Logger
}

func (c *Config) listen() (net.Listener, error) {
	if c.Network != nil {
		return c.Network.Listen(c.Listen)
	}
	return net.Listen("tcp", c.Listen)
}

func (c *Config) check() error {
	if c.Name == "" || c.Region == "" || c.Zone == "" {
		return errors.New("a local instance needs name, region and zone")
	}
	if c.Certs == nil && (!c.Plain || len(c.Gateways) > 0) {
		return errors.New("a local instance needs tls certificates, unless http.plain is set and no gateways are named")
	}
	if c.Certs != nil {
		id := c.Certs.ID()
		if id.Role != identity.RoleLocal || id.Region != c.Region || id.Zone != c.Zone || id.Name != c.Name {
			return fmt.Errorf("the certificate is for %s, not for local %s of zone %s/%s: issue one that matches", id, c.Name, c.Region, c.Zone)
		}
	}
	if _, err := pick.ParsePolicy(c.Policy); err != nil {
		return err
	}
	if c.PrefixIndex <= 0 {
		c.PrefixIndex = defaultPrefixIndex
	}
	if c.ScrapeInterval <= 0 {
		c.ScrapeInterval = time.Second
	}
	return nil
}
