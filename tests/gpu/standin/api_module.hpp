#pragma once

namespace standin {

long live_modules();

}  // namespace standin
