package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/identity"
)

func certsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "certs", Short: "Make certificates", GroupID: "prepare"}
	cmd.AddCommand(certsDevCommand())
	return cmd
}

func certsDevCommand() *cobra.Command {
	var (
		dir, domain string
		ttl         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "dev ID...",
		Short: "Make a development CA and certificates signed by it",
		Long: `Make a development CA and certificates signed by it.

ID says what the holder is and so what it may do:
  global/NAME                          a global node
  region/REGION/gateway/NAME           a gateway
  region/REGION/zone/ZONE/local/NAME   a local instance
  operator/NAME                        an operator's command line

The files are named by region, zone and name, as "spillway config init" writes them: g1.pem, fra-gw1.pem, fra-a-l1.pem.
The CA in --dir is made once and reused. Whoever can read ca.key can become any node: keep it off the nodes.`,
		Example: "  spillway certs dev global/g1 region/virginia/gateway/gw1 operator/me\n  spillway certs dev --dir /etc/spillway/certs --ttl 720h global/g2",
		Args:    cobra.MinimumNArgs(1),
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
				files, err := ca.Issue(id, dir, ttl)
				if err != nil {
					return fmt.Errorf("issuing %s: %w", a, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  cert: %s  key: %s  ca: %s\n", id, files.Cert, files.Key, files.CA)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(".", "certs"), "where the CA and the certificates are")
	cmd.Flags().StringVar(&domain, "trust-domain", "spillway.test", "the trust domain of every certificate")
	cmd.Flags().DurationVar(&ttl, "ttl", 30*24*time.Hour, "how long the certificates last")
	return cmd
}
