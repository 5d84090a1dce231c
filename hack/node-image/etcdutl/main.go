// etcd's own etcdutl (snapshot restore and status), and a command that saves a snapshot of a running etcd.
//
// Two programs of etcd do this, etcdutl and etcdctl. Neither can be installed from its published module alone, because
// its go.mod has replacements, so what a restore needs of both is built here.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.uber.org/zap"
)

func main() {
	root := &cobra.Command{Use: "etcdutl", SilenceUsage: true}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "simple, fields, json, protobuf or table")
	root.AddCommand(etcdutl.NewSnapshotCommand(), &cobra.Command{
		Use:   "save ENDPOINT FILE",
		Short: "save a snapshot of a running etcd",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			config := clientv3.Config{Endpoints: args[:1]}
			_, err := snapshot.SaveWithVersion(context.Background(), zap.NewNop(), config, args[1])
			return err
		},
	})
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
