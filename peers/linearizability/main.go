// Command linearizability checks that Tierce is linearizable: several clients call commands on few keys at the same
// time, and porcupine looks for an order of the calls that explains all replies.
//
// See README.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history that takes longer to check is reported as unknown, which fails.
const checkTime = 60 * time.Second

func main() {
	address := flag.String("address", "127.0.0.1:6379", "the server, whose data is removed")
	seeds := flag.Int("seeds", 20, "how many histories to record and check")
	first := flag.Int64("first-seed", 1, "the seed of the first one")
	clients := flag.Int("clients", 6, "clients that call commands at the same time")
	calls := flag.Int("calls", 16, "calls of each client in one history")
	report := flag.String("report", "", "write a picture of a history that cannot be explained to this file")
	wantsFault := flag.Bool("expect-fault", false, "succeed if one of the histories cannot be explained")
	flag.Parse()
	total := 0
	for seed := *first; seed < *first+int64(*seeds); seed++ {
		history, err := record(*address, seed, *clients, *calls)
		if err != nil {
			fail("seed %d: %v", seed, err)
		}
		total += len(history)
		result, info := porcupine.CheckOperationsVerbose(model, history, checkTime)
		if result == porcupine.Ok {
			continue
		}
		if *report != "" {
			if err := porcupine.VisualizePath(model, info, *report); err != nil {
				fail("%v", err)
			}
		}
		if *wantsFault && result == porcupine.Illegal {
			fmt.Printf("linearizability: the fault was found with seed %d\n", seed)
			return
		}
		print(history)
		fail("seed %d: the history is %v", seed, result)
	}
	if *wantsFault {
		fail("the fault was not found with %d seeds", *seeds)
	}
	fmt.Printf("linearizability: %d histories with %d calls can be explained\n", *seeds, total)
}

// print prints a history in the order in which its calls began.
func print(history []porcupine.Operation) {
	for _, operation := range history {
		fmt.Printf("%9d %9d  client %d  %s\n", operation.Call/1000, operation.Return/1000, operation.ClientId,
			model.DescribeOperation(operation.Input, operation.Output))
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "linearizability: "+format+"\n", args...)
	os.Exit(1)
}
