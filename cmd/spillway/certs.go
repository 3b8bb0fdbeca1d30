package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/identity"
)

func newCertsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "certs", Short: "Make certificates", GroupID: "prepare"}
	cmd.AddCommand(newCertsDevCommand())
	return cmd
}

func newCertsDevCommand() *cobra.Command {
	var (
		dir, domain string
		ttl         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "dev ID...",
		Short: "Make a development CA and certificates signed by it",
		Long: `Make a development CA and certificates signed by it.

ID is the identity of the certificate's holder and determines what it may do:
  global/NAME                          a global node
  region/REGION/gateway/NAME           a gateway
  region/REGION/zone/ZONE/local/NAME   a local instance
  operator/NAME                        an operator's command line

File names contain region, zone and name, as in the configs of "spillway config init": g1.pem, fra-gw1.pem, fra-a-l1.pem.
The CA in --dir is created once and reused. A reader of ca.key can impersonate any node: do not copy it to the nodes.`,
		Example: "  spillway certs dev global/g1 region/virginia/gateway/gw1 operator/me\n  spillway certs dev --dir /etc/spillway/certs --ttl 720h global/g2",
		Args:    requireMinArgs("certs dev ID...", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ca, err := identity.NewDevCA(dir, domain)
			if err != nil {
				return fmt.Errorf("opening the development CA: %w", err)
			}
			for _, a := range args {
				id, err := identity.ParseID("spiffe://" + domain + "/" + a)
				if err != nil {
					return err
				}
				files, err := ca.IssueCert(id, dir, ttl)
				if err != nil {
					return fmt.Errorf("issuing %s: %w", a, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  cert: %s  key: %s  ca: %s\n", id, files.Cert, files.Key, files.CA)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(".", "certs"), "folder of the CA and the certificates")
	cmd.Flags().StringVar(&domain, "trust-domain", "spillway.test", "trust domain of the certificates")
	cmd.Flags().DurationVar(&ttl, "ttl", 30*24*time.Hour, "lifetime of the certificates")
	return cmd
}
