// Goload is a load for the benchmark: encoding, maps, sorting and garbage.
//
// Usage: goload SECONDS
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"
)

// row is encoded and decoded.
type row struct {
	ID   int
	Name string
	Tags []string
}

// documents encodes n rows and decodes them again.
func documents(n int) error {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{ID: i, Name: fmt.Sprintf("row %d", i), Tags: []string{"a", "b"}}
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(rows); err != nil {
		return err
	}
	return json.NewDecoder(&b).Decode(&rows)
}

// words counts n words and returns them in order.
func words(n int) []string {
	count := map[string]int{}
	for i := range n {
		count["w"+strconv.Itoa(i*7919%101)]++
	}
	keys := make([]string, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return count[b] - count[a] })
	return keys
}

// tree returns the number of nodes of a binary tree of the given depth, by
// recursion.
func tree(depth int) int {
	if depth == 0 {
		return 1
	}
	return 1 + tree(depth-1) + tree(depth-1)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: goload SECONDS")
	}
	seconds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatalf("seconds: %v", err)
	}
	nodes := 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		if err := documents(50); err != nil {
			log.Fatal(err)
		}
		words(500)
		nodes += tree(12)
	}
	fmt.Println(nodes, "nodes")
}
