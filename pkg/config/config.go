// Package config reads a service's settings from its environment. All services share one published list of
// APIPAY_* names ([Variables]): a name that is not on it, or a value that cannot be used, stops the start
// with one line, so that a typing error cannot silently become a default.
package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Load fills T, a struct with `env:"APIPAY_..."` and `envDefault` tags, from environ (as os.Environ gives
// it). If T has a method Validate() error, it is called. A secret X may also be given as X_FILE, the path
// of a file that holds it. Errors name variables and never show the value of a secret.
func Load[T any](environ []string) (T, error) {
	var target T
	values, err := collect(environ)
	if err != nil {
		return target, err
	}
	if err := env.ParseWithOptions(&target, env.Options{Environment: values}); err != nil {
		return target, describe(err, reflect.TypeOf(target))
	}
	if v, ok := any(&target).(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return target, err
		}
	}
	return target, nil
}

func collect(environ []string) (map[string]string, error) {
	values := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "APIPAY_") && !isKnown(name) {
			return nil, fmt.Errorf("%s is not a setting of ApiPay Hub%s", name, suggestion(name))
		}
		values[name] = value
	}
	for _, variable := range Variables {
		fileName := variable.Name + "_FILE"
		path := values[fileName]
		if !variable.Secret || path == "" {
			continue
		}
		if values[variable.Name] != "" {
			return nil, fmt.Errorf("%s and %s are both set: keep one", variable.Name, fileName)
		}
		content, err := os.ReadFile(path) // #nosec G304 -- the operator names the file
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", fileName, err)
		}
		values[variable.Name] = strings.TrimSpace(string(content))
	}
	return values, nil
}

func isKnown(name string) bool {
	return slices.ContainsFunc(Variables, func(v Variable) bool {
		return v.Name == name || v.Secret && v.Name+"_FILE" == name
	})
}

// suggestion finds the published name that the unknown one was probably meant to be.
func suggestion(name string) string {
	best, bestDistance := "", 4
	for _, v := range Variables {
		if d := distance(name, v.Name); d < bestDistance {
			best, bestDistance = v.Name, d
		}
	}
	if best == "" {
		return ": remove it, or see the table of the environment in the README"
	}
	return ": did you mean " + best + "?"
}

// distance is the Levenshtein distance of two short ASCII names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		previous := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			previous, row[j] = row[j], min(row[j]+1, row[j-1]+1, previous+cost)
		}
	}
	return row[len(b)]
}

// describe turns the library's error into one line that names the variable.
func describe(err error, target reflect.Type) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	lines := make([]string, 0, len(all.Errors))
	for _, one := range all.Errors {
		var parse env.ParseError
		var missing env.VarIsNotSetError
		var empty env.EmptyVarError
		switch {
		case errors.As(one, &missing):
			lines = append(lines, missing.Key+" is not set")
		case errors.As(one, &empty):
			lines = append(lines, empty.Key+" is empty")
		case errors.As(one, &parse):
			name := variableOf(target, parse.Name)
			if isSecret(name) {
				lines = append(lines, name+" cannot be used")
				continue
			}
			lines = append(lines, fmt.Sprintf("%s cannot be used: %v", name, parse.Err))
		default:
			lines = append(lines, one.Error())
		}
	}
	return errors.New(strings.Join(lines, "; "))
}

func variableOf(target reflect.Type, field string) string {
	if f, ok := target.FieldByName(field); ok {
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		if name != "" {
			return name
		}
	}
	return field
}

func isSecret(name string) bool {
	return slices.ContainsFunc(Variables, func(v Variable) bool { return v.Name == name && v.Secret })
}

// Names are the variables that a config struct reads, for tests that hold it against the published list.
func Names(target any) []string {
	return namesOf(reflect.TypeOf(target))
}

func namesOf(t reflect.Type) []string {
	names := make([]string, 0, t.NumField())
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, namesOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
