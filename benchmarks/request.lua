-- wrk -s request.lua URL -- KEY METHOD [BODY]: sends one request over and over with a key, and
-- tells what wrk saw as one line of JSON behind a mark.

function init(arguments)
  wrk.headers["Authorization"] = "Bearer " .. arguments[1]
  wrk.method = arguments[2]
  if arguments[3] then
    wrk.body = arguments[3]
    wrk.headers["Content-Type"] = "application/json"
  end
  request_bytes = wrk.format()
end

function request()
  return request_bytes
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'FIGURES {"requests":%d,"microseconds":%d,"refused":%d,"broken":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
