// SPDX-License-Identifier: Apache-2.0

// Command health prints what GitOps tools make of Kubernetes objects: kstatus, the library with which Helm 4 and Flux wait,
// and Argo CD, which runs a Lua script in this interpreter.
//
//	health LUA-FILE < objects.json     objects: a JSON list
//
// It prints a JSON list of {"kstatus", "argo", "message"} in the same order.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type health struct {
	Kstatus string `json:"kstatus"`
	Argo    string `json:"argo"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: health LUA-FILE < objects.json")
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	found := []health{}
	for _, text := range objects {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		word, message, err := argo(string(script), object.Object)
		if err != nil {
			return err
		}
		found = append(found, health{result.Status.String(), word, message})
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// argo runs the script as Argo CD does: the object is the global `obj`, and the result is a table.
func argo(script string, object map[string]interface{}) (string, string, error) {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returns no table")
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message")), nil
}

func toLua(state *lua.LState, value interface{}) lua.LValue {
	switch value := value.(type) {
	case map[string]interface{}:
		table := state.NewTable()
		for key, member := range value {
			table.RawSetString(key, toLua(state, member))
		}
		return table
	case []interface{}:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}
