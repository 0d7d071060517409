package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

type endpointsPage struct {
	listPage
	Endpoints []endpoint
}

func (c *Console) endpoints(v *visit) error {
	shown, asked := v.filters("tenant", "status")
	rows, page, status, err := readList[endpoint](v, "/admin/v1/webhook-endpoints", "/endpoints", shown, asked)
	if err != nil {
		return err
	}
	page.Tenants = v.tenants()
	return v.render(status, "endpoints", "Endpoints", endpointsPage{listPage: page, Endpoints: rows})
}

type endpointPage struct {
	endpoint
	Days    string
	Series  healthSeries
	Charts  []chart
	Classes []string
	Total   healthHour
}

// chart is what the browser draws: hours as Unix seconds, and the values of each line.
type chart struct {
	Title, Kind, Unit string
	Data              string
}

var spans = map[string]int{"1": 1, "7": 7, "30": 30}

func (c *Console) endpoint(v *visit) error {
	path := "/admin/v1/webhook-endpoints/" + url.PathEscape(v.Param("id"))
	p := endpointPage{Days: v.QueryParam("days")}
	if spans[p.Days] == 0 {
		p.Days = "7"
	}
	if err := v.read(path, nil, &p.endpoint); err != nil {
		return err
	}
	to := c.clock().UTC()
	span := url.Values{"from": {to.AddDate(0, 0, -spans[p.Days]).Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
	if err := v.read(path+"/health", span, &p.Series); err != nil {
		return err
	}
	p.Classes, p.Total = sumUp(p.Series)
	var err error
	if p.Charts, err = charts(p.Series, p.Classes); err != nil {
		return err
	}
	return v.render(http.StatusOK, "endpoint", "Endpoint "+short(p.ID), p)
}

// sumUp finds the error classes, the most frequent first, and the totals of the span.
func sumUp(series healthSeries) (classes []string, total healthHour) {
	total.Failures = map[string]int64{}
	for _, hour := range series.Hours {
		total.Succeeded += hour.Succeeded
		total.Failed += hour.Failed
		for class, n := range hour.Failures {
			if n == 0 {
				continue
			}
			if total.Failures[class] == 0 {
				classes = append(classes, class)
			}
			total.Failures[class] += n
		}
	}
	slices.SortFunc(classes, func(a, b string) int { return int(total.Failures[b] - total.Failures[a]) })
	return classes, total
}

// charts lays the hours out without gaps: one without attempts has no rate and no latency, and no failures.
func charts(series healthSeries, classes []string) ([]chart, error) {
	byHour := map[int64]healthHour{}
	for _, hour := range series.Hours {
		byHour[hour.Hour.Unix()] = hour
	}
	var times []int64
	var rate, p50, p95, p99 []*float64
	failures := make([][]*float64, len(classes))
	for at := series.From.Truncate(time.Hour); at.Before(series.To); at = at.Add(time.Hour) {
		hour := byHour[at.Unix()]
		times = append(times, at.Unix())
		var share *float64
		if hour.SuccessRate != nil {
			percent := 100 * *hour.SuccessRate
			share = &percent
		}
		rate = append(rate, share)
		p50, p95, p99 = append(p50, hour.LatencyMS.P50), append(p95, hour.LatencyMS.P95), append(p99, hour.LatencyMS.P99)
		for i, class := range classes {
			n := float64(hour.Failures[class])
			failures[i] = append(failures[i], &n)
		}
	}
	words := make([]string, len(classes))
	for i, class := range classes {
		words[i] = classWord(class)
	}
	made := []chart{{Title: "Success rate", Kind: "rate", Unit: "%"}, {Title: "Latency", Kind: "latency", Unit: "ms"}, {Title: "Failures by class", Kind: "failures", Unit: ""}}
	for i, data := range []struct {
		Labels []string     `json:"labels"`
		Times  []int64      `json:"times"`
		Lines  [][]*float64 `json:"lines"`
	}{
		{[]string{"succeeded"}, times, [][]*float64{rate}},
		{[]string{"p50", "p95", "p99"}, times, [][]*float64{p50, p95, p99}},
		{words, times, failures},
	} {
		raw, err := json.Marshal(data)
		if err != nil {
			return nil, fmt.Errorf("encoding a chart: %w", err)
		}
		made[i].Data = string(raw)
	}
	return made, nil
}

func (c *Console) setEndpointStatus(v *visit) error {
	endpoint := url.PathEscape(v.Param("id"))
	err := v.call(http.MethodPatch, "/admin/v1/webhook-endpoints/"+endpoint, nil, map[string]string{"status": v.form("status")}, nil)
	return v.after(err, "The endpoint is "+v.form("status")+".", "/endpoints/"+endpoint)
}
