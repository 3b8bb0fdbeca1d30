package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newDNSSECCommand() *cobra.Command {
	var (
		to     adminTarget
		output string
	)
	cmd := &cobra.Command{
		Use:   "dnssec",
		Short: "Show the DNSSEC state of the zone; enable signing, roll the key, disable signing",
		Long: `Show the DNSSEC state of the zone and the next step. The global nodes create the keys and store them by Raft. Each step
waits until no resolver can lose the chain of trust; deploy/runbooks/dnssec.md lists them in order. When the parent zone
must change, ` + "`spillway dnssec ds`" + ` prints its DS record; after the parent publishes it, ` + "`spillway dnssec seen`" + ` continues.`,
		Example: `  spillway dnssec
  spillway dnssec enable --reason "chain of trust, ticket 4711"
  spillway dnssec ds
  spillway dnssec seen --reason "DS published by all of a..d.nic.example"
  spillway dnssec roll --reason "yearly"
  spillway dnssec disable --reason "moving to another operator"`,
		GroupID: "operate",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return newUsageError("dnssec [ds|keys|enable|seen|roll|disable]", "")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetDNSSEC(ctx)
				if err != nil {
					return err
				}
				if isStructured(output) {
					return printStructured(cmd.OutOrStdout(), output, a)
				}
				printDNSSEC(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	addOutputFlag(cmd, &output)
	cmd.AddCommand(
		newDNSSECDSCommand(), newDNSSECKeysCommand(),
		newDNSSECChangeCommand("enable", "Sign the zone, or cancel a pending disable", "A new key is created, and answers are signed from then on. Do not publish a DS record in the parent zone before\n`spillway dnssec` asks for it."),
		newDNSSECChangeCommand("roll", "Replace the key in use by a new one", "The new key is published in addition to the old one, and signs answers once every resolver has it. Then the DS record of\nthe parent zone must be replaced. The old key is removed once no resolver needs it."),
		newDNSSECChangeCommand("seen", "Confirm that the parent zone publishes the DS record of `spillway dnssec ds`", "Confirm that every server of the parent zone publishes the DS record of `spillway dnssec ds`, and no other. Spillway does not\nverify this: check with dig first."),
		newDNSSECChangeCommand("disable", "Stop signing once no resolver expects signatures", "The parent zone must remove its DS record first. Answers are signed until the DS record has expired from all resolvers."),
	)
	return cmd
}

func newDNSSECDSCommand() *cobra.Command {
	return newDNSSECRecordsCommand("ds", "Print the DS record for the parent zone", func(a *admin.DNSSECAnswer) ([]string, error) {
		if len(a.DS) == 0 {
			return nil, fmt.Errorf("the parent zone must have no DS record now: %s is %s\nhint: %s", a.Zone, a.Phase, a.Next)
		}
		return a.DS, nil
	})
}

func newDNSSECKeysCommand() *cobra.Command {
	return newDNSSECRecordsCommand("keys", "Print the zone's public keys as records; the first signs answers", func(a *admin.DNSSECAnswer) (records []string, err error) {
		if len(a.Keys) == 0 {
			return nil, errors.New("the zone is not signed\nhint: " + a.Next)
		}
		for _, k := range a.Keys {
			records = append(records, k.Record)
		}
		return records, nil
	})
}

// newDNSSECRecordsCommand prints only records to standard output, so that it can be piped.
func newDNSSECRecordsCommand(use, short string, records func(*admin.DNSSECAnswer) ([]string, error)) *cobra.Command {
	var to adminTarget
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  spillway dnssec " + use,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetDNSSEC(ctx)
				if err != nil {
					return err
				}
				lines, err := records(a)
				for _, line := range lines {
					fmt.Fprintln(cmd.OutOrStdout(), line)
				}
				return err
			})
		},
	}
	to.addFlags(cmd)
	return cmd
}

// newDNSSECChangeCommand returns a command that requests a change of the signing state.
func newDNSSECChangeCommand(action, short, long string) *cobra.Command {
	var (
		to     adminTarget
		reason string
	)
	cmd := &cobra.Command{
		Use: action, Short: short, Long: short + ".\n\n" + long,
		Example: "  spillway dnssec " + action + ` --reason "..."`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.ChangeDNSSEC(ctx, admin.DNSSECRequest{Action: action, Reason: reason})
				if err != nil {
					return err
				}
				printDNSSEC(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

func printDNSSEC(w io.Writer, a *admin.DNSSECAnswer) {
	fmt.Fprintf(w, "zone %s: %s", a.Zone, a.Phase)
	if !a.Since.IsZero() {
		fmt.Fprintf(w, " since %s", a.Since.Format(time.RFC3339))
	}
	if !a.Due.IsZero() {
		fmt.Fprintf(w, ", next step not before %s", a.Due.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	if len(a.Keys) > 0 {
		writeTable(w, func(t io.Writer) {
			fmt.Fprintln(t, "KEY\tCREATED\tSIGNS")
			for _, k := range a.Keys {
				signs := "DNSKEY records"
				if k.SignsAnswers {
					signs = "answers, DNSKEY records"
				}
				fmt.Fprintf(t, "%d\t%s\t%s\n", k.Tag, k.Made.Format(time.RFC3339), signs)
			}
		})
	}
	fmt.Fprintln(w, "next:", a.Next)
}
