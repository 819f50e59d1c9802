-- wrk -s request.lua URL -- KEY METHOD BODY [PATH...]: sends one request over and over with a key
-- (that of the URL and those of further paths in turns), and tells what wrk saw as one line of
-- JSON behind a mark.

local requests = {}
local turn = 0

function init(arguments)
  wrk.headers["Authorization"] = "Bearer " .. arguments[1]
  wrk.method = arguments[2]
  if arguments[3] ~= "" then
    wrk.body = arguments[3]
    wrk.headers["Content-Type"] = "application/json"
  end
  requests[1] = wrk.format()
  for i = 4, #arguments do
    requests[i - 2] = wrk.format(nil, arguments[i])
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'FIGURES {"requests":%d,"microseconds":%d,"refused":%d,"broken":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
