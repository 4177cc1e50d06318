// Declares the number of loaded modules, which the leak counts of standin.h need.
#pragma once

namespace standin {

long live_modules();

}  // namespace standin
